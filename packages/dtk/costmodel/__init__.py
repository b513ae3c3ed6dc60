"""What training costs: times and memory of layers, collectives and transfers, checked on measurements."""
