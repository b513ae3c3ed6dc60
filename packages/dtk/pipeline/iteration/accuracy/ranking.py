"""Whether the model ranks layouts of one model as the measurements do, and what its favourite costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import Final

from dtk.pipeline.iteration.published import Comparison

__all__ = ["CALCULON", "Peer", "Ranking", "kendall_tau", "rank", "regret"]


@dataclass(frozen=True, slots=True)
class Peer:
    """What another model did on the same rows.

    Attributes:
        name: Which.
        source: How its figures came about.
        mean_error: Of runs with tensor parallelism inside nodes, the mean absolute relative error.
        tau: Kendall's tau by model.
        regret: By model, what its favourite layout takes longer than the fastest.
    """

    name: str
    source: str
    mean_error: float
    tau: dict[str, float]
    regret: dict[str, float]


CALCULON: Final = Peer(
    "Calculon",
    "Calculon as shipped, run on these rows for dtk: its a100_80g system with 12.5 GB/s of network for each "
    "chip, the check of memory off, no vocabulary; nothing of it was fitted to these rows; not run again "
    "here",
    0.111,
    {"3.6B": 0.90, "18.4B": 0.50, "175B": 0.66},
    {"3.6B": 0.0, "18.4B": 0.045, "175B": 0.006},
)
"""Calculon (Isaev et al., SC'23) on vTrain's rows of several nodes."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well layouts are ranked.

    Attributes:
        num_rows: Layouts.
        tau: Kendall's tau (tau-b) of predicted and measured times: 1 for the same order.
        regret: What the layout predicted fastest takes longer than the fastest, as a share.
    """

    num_rows: int
    tau: float
    regret: float


def rank(comparisons: Sequence[Comparison]) -> Ranking:
    """Return how well the model ranks runs of one model and batch."""
    measured = [each.measured.measured_s for each in comparisons]
    predicted = [each.estimated.iteration_s for each in comparisons]
    return Ranking(len(measured), kendall_tau(predicted, measured), regret(predicted, measured))


def kendall_tau(left: Sequence[float], right: Sequence[float]) -> float:
    """Return Kendall's tau-b: pairs in the same order less those in opposite order, as a share.

    Raises:
        ValueError: If one side has no two different values.
    """
    agreement = untied_left = untied_right = 0
    for (x1, y1), (x2, y2) in combinations(zip(left, right, strict=True), 2):
        signs = _sign(x1 - x2), _sign(y1 - y2)
        agreement += signs[0] * signs[1]
        untied_left += abs(signs[0])
        untied_right += abs(signs[1])
    if not (untied_left and untied_right):
        raise ValueError("no order: all values are the same")
    return agreement / sqrt(untied_left * untied_right)


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return what the choice predicted to be smallest is above the smallest, as a share of it."""
    choice = min(range(len(predicted)), key=predicted.__getitem__)
    return measured[choice] / min(measured) - 1


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
