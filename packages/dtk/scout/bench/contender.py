"""What takes part in the comparison, and when its answer counts as right."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

__all__ = ["OUR_TOLERANCE", "Contender", "peer_tolerance", "relative_error"]

OUR_TOLERANCE = 1e-4
"""Largest relative error of our output: it is summed in fp32, whatever K/V are stored in."""

# Torch rounds its output, and some of what leads to it, to the format of K/V.
_PEER_TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2}


@dataclass(frozen=True)
class Contender:
    """One way to compute a case.

    Attributes:
        name: A short name.
        run: Computes it once, and returns [batch, query heads, head size].
        tolerance: Largest `relative_error` that passes.
    """

    name: str
    run: Callable[[], Tensor]
    tolerance: float


def peer_tolerance(dtype: str) -> float:
    """Return the largest relative error of a peer that computes in a number format."""
    return _PEER_TOLERANCES[dtype]


def relative_error(output: Tensor, expected: Tensor) -> float:
    """Return the largest error over the largest expected value; infinity if the output holds NaN."""
    error = (output.double() - expected).abs().max() / expected.abs().max()
    return float(error.nan_to_num(nan=float("inf")))
