"""What the benchmark scripts measure: each operation against torch's own ways and this machine's limits."""
