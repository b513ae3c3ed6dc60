"""When everything of a plan happens, the optimizer step included, and why ranks stand still."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtk.pipeline.action import Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.listing import CODES, Listing
from dtk.pipeline.simulate.plan import Plan
from dtk.pipeline.simulate.result import IdleCause

__all__ = ["Timing", "idle_times", "make_timing"]

Times = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Timing:
    """Times in nanoseconds.

    Attributes:
        start: [N] of each task of the plan.
        end: [N].
        computed: [P] the end of the rank's last compute action.
        awaited: [P] the end of all compute that its optimizer step waits for.
        optimizer_start: [P].
        optimizer_end: [P].
        makespan: The end of everything.
    """

    start: Times
    end: Times
    computed: Times
    awaited: Times
    optimizer_start: Times
    optimizer_end: Times
    makespan: int


def make_timing(
    schedule: Schedule, costs: StageCosts, listing: Listing, plan: Plan, start: Times, *, synchronised: bool
) -> Timing:
    """Return all times, from the starts of the plan's tasks."""
    end = start + plan.graph.durations_ns
    num_ranks = schedule.num_ranks
    computed, reduced, optimizer = (np.zeros(num_ranks, np.int64) for _ in range(3))
    before = listing.tasks_before_rank
    busy = np.flatnonzero(np.diff(before))
    computed[busy] = end[before[busy + 1] - 1]
    if len(plan.reduce_parts):
        np.maximum.at(reduced, listing.rank[plan.reduce_parts], end[-len(plan.reduce_parts) :])
    np.add.at(optimizer, np.array(schedule.rank_of_stage, np.int64), np.array(costs.optimizer_ns, np.int64))
    awaited = np.full_like(computed, computed.max(initial=0)) if synchronised else computed
    waits = np.maximum(awaited, reduced.max(initial=0) if synchronised else reduced)
    makespan = int(max(end.max(initial=0), (waits + optimizer).max(initial=0)))
    return Timing(start, end, computed, awaited, waits, waits + optimizer, makespan)


def idle_times(listing: Listing, plan: Plan, timing: Timing) -> tuple[Mapping[IdleCause, int], ...]:
    """Return each rank's time without compute, by cause."""
    before, num_compute = listing.tasks_before_rank, len(listing.action_of_task)
    start, free = timing.start[:num_compute], np.zeros(num_compute, np.int64)
    free[1:] = timing.end[: num_compute - 1]
    first = before[:-1][np.diff(before) > 0]
    free[first] = 0
    shares = {cause: np.zeros(num_compute, np.int64) for cause in IdleCause}
    shares[IdleCause.FILL][first] = start[first]
    stood_still = start > free
    stood_still[first] = False
    waits = _Waits(listing, plan, timing, np.flatnonzero(stood_still))
    for cause, time in waits.shares(free, start).items():
        shares[cause][waits.tasks] = time
    totals = {cause: _sums_by_rank(share, before) for cause, share in shares.items()}
    totals[IdleCause.REDUCE] += timing.optimizer_start - timing.awaited
    totals[IdleCause.DRAIN] += timing.awaited - timing.computed
    totals[IdleCause.DRAIN] += timing.makespan - timing.optimizer_end
    return tuple(
        {cause: int(total[rank]) for cause, total in totals.items() if total[rank]}
        for rank in range(len(before) - 1)
    )


class _Waits:
    """What compute actions waited for that started later than their rank was free."""

    def __init__(self, listing: Listing, plan: Plan, timing: Timing, tasks: NDArray[np.int64]) -> None:
        self.tasks = tasks
        parts = np.flatnonzero(listing.is_compute & np.isin(listing.task, tasks))
        self._slot = np.searchsorted(tasks, listing.task[parts])
        self._end = timing.end
        is_forward = listing.kind[parts] == CODES[Kind.FORWARD]
        needs = plan.needs
        self.unshard = self._ends(needs.gathered[parts])
        self.activation = self._ends(np.where(is_forward, needs.arrival[parts], -1))
        self.gradient = self._ends(np.where(is_forward, -1, needs.arrival[parts]))
        self.activation_made = self._ends(np.where(is_forward, needs.made[parts], -1))
        self.gradient_made = self._ends(np.where(is_forward, -1, needs.made[parts]))

    def _ends(self, tasks: NDArray[np.int64]) -> Times:
        """Return the latest end for each waiting task, -1 where it has nothing to wait for."""
        ends = np.full(len(self.tasks), -1)
        np.maximum.at(ends, self._slot, np.where(tasks >= 0, self._end[tasks], -1))
        return ends

    def shares(self, free: Times, start: Times) -> dict[IdleCause, Times]:
        """Split the time from free to start by what came last; of equals the parameters, then the input."""
        free, start = free[self.tasks], start[self.tasks]
        gap = start - free
        by_unshard = self.unshard == start
        by_activation = ~by_unshard & (self.activation == start)
        made = np.where(by_activation, self.activation_made, self.gradient_made)
        computing = np.where(by_unshard, 0, np.clip(made - free, 0, gap))
        return {
            IdleCause.UNSHARD: np.where(by_unshard, gap, 0),
            IdleCause.ACTIVATION: np.where(by_activation, computing, 0),
            IdleCause.GRADIENT: np.where(by_activation, 0, computing),
            IdleCause.TRANSFER: np.where(by_unshard, 0, gap - computing),
        }


def _sums_by_rank(values: Times, before: NDArray[np.int64]) -> Times:
    cumulated = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=cumulated[1:])
    sums: Times = cumulated[before[1:]] - cumulated[before[:-1]]
    return sums
