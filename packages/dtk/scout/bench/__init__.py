"""Benchmarks of what ScoutAttention's speed rests on, against the machine's limits and against peers."""

__all__: list[str] = []
