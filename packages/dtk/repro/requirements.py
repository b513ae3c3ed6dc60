"""What a claim needs that a machine may lack; each probe says in words what is missing."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import psutil

from dtk.repro.claim import Claim, Requirement
from dtk.repro.values import format_bytes

__all__ = ["REQUIREMENTS", "why_not_testable"]


def _missing_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "needs a GPU, and torch sees none here"


REQUIREMENTS: Final[Mapping[Requirement, Callable[[], str | None]]] = MappingProxyType({"gpu": _missing_gpu})
"""By requirement, a probe that returns None or what is missing."""


def why_not_testable(claim: Claim) -> str | None:
    """Return why `claim` cannot be tested here and now, or None if it can."""
    problems = [problem for name in claim.requires if (problem := REQUIREMENTS[name]()) is not None]
    if claim.untestable is not None:
        problems.append(claim.untestable)
    free_bytes = psutil.virtual_memory().available
    if not problems and free_bytes < claim.memory:
        needed, free = format_bytes(claim.memory), format_bytes(free_bytes)
        problems.append(f"needs {needed} of memory, and {free} is free")
    return "; ".join(problems) or None
