"""Whether rows of a table are independent timings: exactly affine times were composed from fewer."""

from collections.abc import Iterable
from dataclasses import dataclass

from dtk.costmodel.measurements import MeasuredRun

__all__ = ["AffineGroup", "affine_groups"]


@dataclass(frozen=True, slots=True)
class AffineGroup:
    """Runs that differ in the number of micro-batches alone.

    Attributes:
        runs: Three or more, by number of micro-batches.
        fixed_s: What an iteration takes besides its micro-batches, on the line through first and last row.
        micro_batch_s: What each micro-batch takes.
        residual: The largest relative distance of a row from that line.
    """

    runs: tuple[MeasuredRun, ...]
    fixed_s: float
    micro_batch_s: float
    residual: float


def affine_groups(runs: Iterable[MeasuredRun]) -> tuple[AffineGroup, ...]:
    """Return the groups of three or more runs that differ in the number of micro-batches alone."""
    groups: dict[object, dict[int, MeasuredRun]] = {}
    for run in runs:
        key = (run.source.name, run.shape, run.layout, run.sharding, run.job.micro_batch, run.node)
        groups.setdefault(key, {})[run.num_microbatches] = run
    found = [[by_number[number] for number in sorted(by_number)] for by_number in groups.values()]
    return tuple(_affine(each) for each in found if len(each) > 2)


def _affine(runs: list[MeasuredRun]) -> AffineGroup:
    first, last = runs[0], runs[-1]
    micro_batch_s = (last.measured_s - first.measured_s) / (last.num_microbatches - first.num_microbatches)
    fixed_s = first.measured_s - first.num_microbatches * micro_batch_s
    residual = max(
        abs(fixed_s + run.num_microbatches * micro_batch_s - run.measured_s) / run.measured_s for run in runs
    )
    return AffineGroup(tuple(runs), fixed_s, micro_batch_s, residual)
