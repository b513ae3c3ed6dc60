"""What each rank holds over time, from the times at which things start and end."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtk.pipeline.action import Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.listing import CODES, Indices, Listing
from dtk.pipeline.simulate.plan import Plan
from dtk.pipeline.simulate.result import MemoryKind, MemoryStep
from dtk.pipeline.simulate.timing import Timing

__all__ = ["RankMemory", "memory_by_rank", "memory_steps"]

_KINDS = list(MemoryKind)
_CHUNKS = len(_KINDS)  # a row of its own, which counts chunk activations


@dataclass(frozen=True, eq=False)
class RankMemory:
    """The levels of one rank over time.

    Attributes:
        times: [T] ascending and distinct: when something changes.
        levels: [5, T] what is held from then on: bytes by kind of memory, then chunk activations.
    """

    times: NDArray[np.int64]
    levels: NDArray[np.int64]

    @property
    def peak_bytes(self) -> int:
        """The most bytes at one time."""
        return int(self.levels[:_CHUNKS].sum(axis=0).max(initial=0))

    @property
    def peak_bytes_by_kind(self) -> dict[MemoryKind, int]:
        """The most bytes of each kind at one time."""
        peaks = self.levels.max(axis=1, initial=0)
        return {kind: int(peaks[row]) for row, kind in enumerate(_KINDS)}

    @property
    def peak_chunks(self) -> int:
        """The most chunk activations at one time."""
        return int(self.levels[_CHUNKS].max(initial=0))


def memory_by_rank(
    schedule: Schedule, costs: StageCosts, listing: Listing, plan: Plan, timing: Timing
) -> Iterator[RankMemory]:
    """Yield the memory of each rank."""
    at_start, at_end = _compute_changes(costs, listing)
    others = _parameter_changes(schedule, costs, listing, plan, timing)
    others = _joined(others, _gradient_changes(costs, listing, plan, timing))
    before = listing.tasks_before_rank
    for rank in range(schedule.num_ranks):
        tasks = slice(before[rank], before[rank + 1])
        mine = others.rank == rank
        times = np.concatenate([timing.start[tasks], timing.end[tasks], others.time[mine]])
        changes = np.concatenate([at_start[:, tasks], at_end[:, tasks], others.change[:, mine]], axis=1)
        order = np.argsort(times, kind="stable")
        times = times[order]
        is_last = np.diff(times, append=-1) != 0
        yield RankMemory(times[is_last], np.cumsum(changes[:, order], axis=1)[:, is_last])


def memory_steps(memories: Iterator[RankMemory]) -> list[MemoryStep]:
    """Return the levels over time, where they change: by time, then rank, then kind."""
    steps = []
    for rank, memory in enumerate(memories):
        rows, places = np.nonzero(np.diff(memory.levels[:_CHUNKS], axis=1, prepend=0))
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            level = int(memory.levels[row, place])
            steps.append((int(memory.times[place]), rank, row, level))
    return [MemoryStep(time, rank, _KINDS[row], level) for time, rank, row, level in sorted(steps)]


def _compute_changes(costs: StageCosts, listing: Listing) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what each compute action adds to each row at its start and at its end, [5, C] each."""
    activation, weight = MemoryKind.ACTIVATION, MemoryKind.WEIGHT_GRAD_INPUT
    at_start, at_end = (np.zeros((_CHUNKS + 1, len(listing.action_of_task)), np.int64) for _ in range(2))
    activation_bytes = np.array(costs.activation_bytes, np.int64)
    weight_bytes = np.array(costs.weight_grad_bytes, np.int64)

    def change(table: NDArray[np.int64], row: int, kind: Kind, sizes: NDArray[np.int64]) -> None:
        parts = listing.parts_of(kind)
        table[row, listing.task[parts]] += sizes[listing.stage[parts]]

    one = np.ones_like(activation_bytes)
    held, pending = _KINDS.index(activation), _KINDS.index(weight)
    change(at_start, held, Kind.FORWARD, activation_bytes)
    change(at_start, _CHUNKS, Kind.FORWARD, one)
    change(at_end, held, Kind.INPUT_GRAD, -activation_bytes)
    change(at_end, held, Kind.FULL_BACKWARD, -activation_bytes)
    change(at_end, pending, Kind.INPUT_GRAD, weight_bytes)
    change(at_end, pending, Kind.WEIGHT_GRAD, -weight_bytes)
    change(at_end, _CHUNKS, Kind.WEIGHT_GRAD, -one)
    change(at_end, _CHUNKS, Kind.FULL_BACKWARD, -one)
    return at_start, at_end


@dataclass(frozen=True, eq=False)
class _Changes:
    """Changes at any times: [n] rank and time, [5, n] change."""

    rank: Indices
    time: NDArray[np.int64]
    change: NDArray[np.int64]


def _changes(kind: MemoryKind, rank: Indices, time: NDArray[np.int64], size: NDArray[np.int64]) -> _Changes:
    change = np.zeros((_CHUNKS + 1, len(rank)), np.int64)
    change[_KINDS.index(kind)] = size
    return _Changes(rank, time, change)


def _joined(*changes: _Changes) -> _Changes:
    return _Changes(
        np.concatenate([each.rank for each in changes]),
        np.concatenate([each.time for each in changes]),
        np.concatenate([each.change for each in changes], axis=1),
    )


class _Runs(NamedTuple):
    """Places in a list of parts: what opens a stage's run, what closes one, and what comes before that."""

    first: Indices
    closing: Indices
    last: Indices


def _runs(listing: Listing, parts: Indices, opens: NDArray[np.bool_]) -> _Runs:
    """Cut the parts of each stage, as its list has them, into runs of `opens` that one of the others closes.

    What closes no run is left out, and a run may stay open.
    """
    order = np.argsort(listing.stage[parts], kind="stable")
    opens, stage = opens[order], listing.stage[parts][order]
    follows = np.zeros(len(parts), np.bool_)
    follows[1:] = (stage[1:] == stage[:-1]) & opens[:-1]
    closing = np.flatnonzero(~opens & follows)
    return _Runs(order[opens & ~follows], order[closing], order[closing - 1])


def _parameter_changes(
    schedule: Schedule, costs: StageCosts, listing: Listing, plan: Plan, timing: Timing
) -> _Changes:
    """Gathered parameters come at the start of UNSHARD and go at RESHARD, but not before they are there."""
    kind, sizes = MemoryKind.PARAMETER, np.array(costs.parameter_bytes, np.int64)
    rank_of_stage = np.array(schedule.rank_of_stage, np.int64)
    whole = np.setdiff1d(np.arange(schedule.num_stages), listing.stage[plan.unshard_parts])
    parts = listing.parts_of(Kind.UNSHARD, Kind.RESHARD)
    is_unshard = listing.kind[parts] == CODES[Kind.UNSHARD]
    first = len(timing.end) - len(plan.reduce_parts) - len(plan.unshard_parts)
    gather = first + np.cumsum(is_unshard) - 1  # of an UNSHARD its task
    runs = _runs(listing, parts, is_unshard)
    stage, rank, task = listing.stage[parts], listing.rank[parts], listing.task[parts[runs.closing]]
    issued = np.where(task >= 0, timing.end[task], 0)
    freed = np.maximum(issued, timing.end[gather[runs.last]])
    return _joined(
        _changes(kind, rank_of_stage[whole], np.zeros_like(whole), sizes[whole]),
        _changes(kind, rank[runs.first], timing.start[gather[runs.first]], sizes[stage[runs.first]]),
        _changes(kind, rank[runs.closing], freed, -sizes[stage[runs.closing]]),
    )


def _gradient_changes(costs: StageCosts, listing: Listing, plan: Plan, timing: Timing) -> _Changes:
    """Gradients come with the first weight gradient since a REDUCE_GRAD, and go when the next has ended."""
    kind, sizes = MemoryKind.GRADIENT, np.array(costs.gradient_bytes, np.int64)
    parts = listing.parts_of(Kind.WEIGHT_GRAD, Kind.FULL_BACKWARD, Kind.REDUCE_GRAD)
    is_reduction = listing.kind[parts] == CODES[Kind.REDUCE_GRAD]
    reduction = len(timing.end) - len(plan.reduce_parts) + np.cumsum(is_reduction) - 1
    runs = _runs(listing, parts, ~is_reduction)
    stage, rank = listing.stage[parts], listing.rank[parts]
    start = timing.start[listing.task[parts[runs.first]]]
    end = timing.end[reduction[runs.closing]]
    return _joined(
        _changes(kind, rank[runs.first], start, sizes[stage[runs.first]]),
        _changes(kind, rank[runs.closing], end, -sizes[stage[runs.closing]]),
    )
