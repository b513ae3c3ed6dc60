"""Why a configuration does not fit, and by how much."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dtk.errors import InputError
from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.reasons import MemoryParts, memory_parts
from dtk.zeropp.planning.search import NearMiss

__all__ = ["Shortfall", "explain_miss"]

_LOOKED_AT: Final = 24


@dataclass(frozen=True)
class Shortfall:
    """A plan that needs more memory than there is; basis: simulated.

    Attributes:
        evaluated: The plan.
        memory: What its fullest rank would hold.
    """

    evaluated: Evaluated
    memory: MemoryParts

    @property
    def excess_bytes(self) -> int:
        """By how much it does not fit."""
        return self.memory.total_bytes - self.evaluated.limit_bytes


def explain_miss(
    evaluator: Evaluator, misses: Sequence[NearMiss], *, deadline: float | None = None
) -> Shortfall | None:
    """Return the one of several configurations that exceeds the memory by least, of the likeliest ones.

    Args:
        evaluator: Estimates them.
        misses: What they need at least, the least first: some of them are bounds only.
        deadline: When to take the nearest so far, in seconds of `time.monotonic`.
    """
    nearest: Evaluated | None = None
    for miss in misses[:_LOOKED_AT]:
        if nearest is not None and miss.needs_bytes >= nearest.estimate.peak_bytes:
            break
        if nearest is not None and deadline is not None and time.monotonic() > deadline:
            break
        try:
            evaluated = evaluator.evaluate(miss.candidate)
        except InputError:
            continue
        if nearest is None or evaluated.estimate.peak_bytes < nearest.estimate.peak_bytes:
            nearest = evaluated
    return None if nearest is None else Shortfall(nearest, memory_parts(nearest.estimate))
