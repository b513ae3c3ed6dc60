"""How long a schedule takes and what it holds: a native engine, and a plain Python one as its oracle."""

from dtk.pipeline.simulate.engine import simulate, simulate_memory, simulate_tasks

__all__ = ["simulate", "simulate_memory", "simulate_tasks"]
