"""Lower bounds on the makespan: what no schedule of these stages can beat.

They hold for every schedule that the validator accepts, whatever order, split or joined backwards and
overlapped pairs it uses. A full backward takes as long as its halves and hands its gradient on later than a
split one, and a pair takes as long as its parts and wants both their inputs first; so whatever they can do, a
schedule of split backwards can do as early, and only those are bounded here. Gathers, reductions and the
optimizer step count as free. Beyond that the costs are the simulator's: one compute action at a time on a
rank, and a stream for each direction between two ranks.

How it works. Micro-batches are alike, so let the i-th F of a stage be the i-th in the order of execution. Its
*release* is a time before which it cannot start, its *tail* a time that must still pass after it has ended;
`dtk.pipeline.bounds.windows` states why. A rank then has M jobs of each kind and stage that run one at a
time, and the best preemptive schedule of jobs with releases and tails (Jackson's: whatever is released and
has the longest tail) is a bound, for it relaxes the real problem. It covers the work of the rank with the
fill before and the drain after it, and the critical path.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dtk.pipeline.bounds.problem import BoundedProblem, bounded_problem
from dtk.pipeline.bounds.windows import Windows, releases, tails
from dtk.pipeline.costs import StageCosts

__all__ = ["LowerBounds", "lower_bounds", "makespan_bound"]


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds by what they rest on.

    Attributes:
        critical_path_ns: One micro-batch forward through all stages and back.
        rank_ns: For each rank what its jobs imply, with their releases and tails.
        memory_ns: For each rank what its limit alone implies: all activations, each for its shortest life,
            within the memory there is. 0 without a limit.
    """

    critical_path_ns: int
    rank_ns: tuple[int, ...]
    memory_ns: tuple[int, ...]

    @property
    def makespan_ns(self) -> int:
        """The largest of the bounds: no schedule ends earlier."""
        return max(self.critical_path_ns, *self.rank_ns, *self.memory_ns)


def makespan_bound(
    rank_of_stage: Sequence[int],
    num_microbatches: int,
    costs: StageCosts,
    memory_limit: Sequence[int] | None = None,
) -> int:
    """Return what no schedule can beat, in nanoseconds; arguments and errors are those of `lower_bounds`."""
    return lower_bounds(rank_of_stage, num_microbatches, costs, memory_limit).makespan_ns


def lower_bounds(
    rank_of_stage: Sequence[int],
    num_microbatches: int,
    costs: StageCosts,
    memory_limit: Sequence[int] | None = None,
) -> LowerBounds:
    """Return lower bounds on the makespan of any schedule.

    Args:
        rank_of_stage: For each stage the rank that holds it; every rank holds one.
        num_microbatches: M.
        costs: Times and, for the limit, `activation_bytes` and `weight_grad_bytes`; where both are 1 the
            limit is in chunk activations.
        memory_limit: For each rank, in the units of the costs' bytes. Actions that take no time hold memory
            like others. None for no limit.

    Raises:
        InputError: If the sizes do not fit each other, or a rank cannot hold one micro-batch.
    """
    problem = bounded_problem(tuple(rank_of_stage), num_microbatches, costs, memory_limit)
    starts, rests = releases(problem), tails(problem)
    ranks = range(problem.num_ranks)
    ends = (start[0] + time for start, time in zip(starts.weight_grad, costs.weight_grad_ns, strict=True))
    return LowerBounds(
        critical_path_ns=max(ends),
        rank_ns=tuple(_preemptive_makespan(_jobs(problem, rank, starts, rests)) for rank in ranks),
        memory_ns=tuple(_lives_in_memory(problem, rank, starts) for rank in ranks),
    )


def _jobs(problem: BoundedProblem, rank: int, starts: Windows, rests: Windows) -> list[tuple[int, int, int]]:
    """Return release, length and tail of a rank's jobs; the i-th of M is the (M-1-i)-th last."""
    costs = problem.costs
    kinds = (
        (costs.forward_ns, starts.forward, rests.forward),
        (costs.input_grad_ns, starts.input_grad, rests.input_grad),
        (costs.weight_grad_ns, starts.weight_grad, rests.weight_grad),
    )
    return [
        (release, lengths[stage], tail)
        for stage in problem.stages_of_rank[rank]
        for lengths, first, last in kinds
        for release, tail in zip(first[stage], reversed(last[stage]), strict=True)
    ]


def _preemptive_makespan(jobs: list[tuple[int, int, int]]) -> int:
    """Return the makespan of Jackson's preemptive schedule: release, length and tail of each job."""
    jobs.sort()
    running: list[tuple[int, int]] = []  # heap of (-tail, remaining length)
    now, makespan, index = 0, 0, 0
    while index < len(jobs) or running:
        if not running:
            now = max(now, jobs[index][0])
        while index < len(jobs) and jobs[index][0] <= now:
            heapq.heappush(running, (-jobs[index][2], jobs[index][1]))
            index += 1
        tail, remaining = heapq.heappop(running)
        if index < len(jobs) and now + remaining > jobs[index][0]:
            heapq.heappush(running, (tail, now + remaining - jobs[index][0]))
            now = jobs[index][0]
        else:
            now += remaining
            makespan = max(makespan, now - tail)
    return makespan


def _lives_in_memory(problem: BoundedProblem, rank: int, starts: Windows) -> int:
    """Return a bound from memory: what the rank holds over time is at least all lives, and at most the limit.

    An activation holds its full size at least from the start of its forward along the micro-batch's way to
    the last stage and back, and then the lesser size for its weight gradient.
    """
    limit = problem.limits[rank] if problem.limits is not None else 0
    if not limit:
        return 0
    costs, kept, lives = problem.costs, problem.kept, 0
    for stage in problem.stages_of_rank[rank]:
        lives += costs.activation_bytes[stage] * _way_to_the_end_and_back(problem, stage)
        lives += kept[stage] * costs.weight_grad_ns[stage]
    sizes = (
        size
        for stage in problem.stages_of_rank[rank]
        for size in (costs.activation_bytes[stage], kept[stage])
    )
    limit -= limit % (math.gcd(*sizes) or 1)  # what is held is a multiple of it
    start = starts.forward[problem.stages_of_rank[rank][0]][0]
    return start + -(-lives * problem.num_microbatches // limit)


def _way_to_the_end_and_back(problem: BoundedProblem, stage: int) -> int:
    costs, ranks, way = problem.costs, problem.rank_of_stage, 0
    for each in range(stage, problem.num_stages):
        way += costs.forward_ns[each] + costs.input_grad_ns[each]
        if each > stage and ranks[each] != ranks[each - 1]:
            way += costs.activation_transfer_ns[each - 1] + costs.gradient_transfer_ns[each]
    return way
