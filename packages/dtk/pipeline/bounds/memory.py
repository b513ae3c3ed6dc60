"""What a rank's memory limit implies for the i-th job of each of its stages."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from dtk.pipeline.bounds.problem import BoundedProblem

__all__ = ["FreedMemory", "FreeingWork", "memory_lags"]


@dataclass
class _Freed:
    """What a rank can have freed by when: times, ascending, and the sum of the sizes up to each."""

    limit: int | None
    times: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)

    def add(self, time: int, size: int) -> None:
        index = bisect_left(self.times, time)  # near the end as a rule
        self.times.insert(index, time)
        before = self.sums[index - 1] if index else 0
        self.sums[index:] = [before + size, *(each + size for each in self.sums[index:])]

    def time_for(self, held: int) -> int:
        """Return a time before which `held` in all exceeds the limit, for too little can have been freed."""
        if self.limit is None or held <= self.limit:
            return 0
        return self.times[bisect_left(self.sums, held - self.limit)]


class FreedMemory:
    """When so many activations of these sizes can have been held at the earliest, for what has been freed."""

    def __init__(self, problem: BoundedProblem, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self._ranks = problem.rank_of_stage
        self._freed = [_Freed(limit) for limit in problem.limits or (None,) * problem.num_ranks]
        self._up_to = problem.sums_up_to(sizes)
        self._all = [self._up_to[problem.stages_of_rank[rank][-1]] for rank in self._ranks]

    def free(self, stage: int, time: int, size: int) -> None:
        """Note that the stage's rank can have freed so much from this time on."""
        freed = self._freed[self._ranks[stage]]
        if freed.limit is not None and size:
            freed.add(time, size)

    def for_stage(self, stage: int, number: int) -> int:
        """Return when `number` activations of one stage can have been held."""
        return self._freed[self._ranks[stage]].time_for(number * self.sizes[stage])

    def for_stages_up_to(self, stage: int, number: int) -> int:
        """Return when so many of each of the rank's stages up to this one can have been held."""
        return self._freed[self._ranks[stage]].time_for(number * self._up_to[stage])

    def for_all_stages(self, stage: int, number: int) -> int:
        """Return when so many of each of the rank's stages can have been held."""
        return self._freed[self._ranks[stage]].time_for(number * self._all[stage])


class FreeingWork:
    """The least work on a rank that frees what must have been freed before the i-th job of a stage."""

    def __init__(self, problem: BoundedProblem) -> None:
        costs, kept = problem.costs, problem.kept
        self._ranks, self._limits = problem.rank_of_stage, problem.limits
        self._up_to = problem.sums_up_to(costs.activation_bytes)
        self._kept = [sum(kept[stage] for stage in held) for held in problem.stages_of_rank]
        # For each rank (work, size freed), most freed by least work first.
        self._i_and_w: list[list[tuple[int, int]]] = []
        self._w: list[list[tuple[int, int]]] = []
        for held in problem.stages_of_rank:
            both, second = [], []
            for stage in held:
                by_i = (costs.input_grad_ns[stage], costs.activation_bytes[stage] - kept[stage])
                by_w = (costs.weight_grad_ns[stage], kept[stage])
                second.append(by_w)
                # W comes after I: where it alone would free more by less work, the two are one piece.
                apart = by_i[0] * by_w[1] <= by_w[0] * by_i[1]
                both.extend([by_i, by_w] if apart else [(by_i[0] + by_w[0], by_i[1] + by_w[1])])
            self._i_and_w.append(_by_efficiency(both))
            self._w.append(_by_efficiency(second))

    def before_f(self, stage: int, i: int) -> int:
        """Return the work of I and W before the i-th F of a stage."""
        if self._limits is None:
            return 0
        rank = self._ranks[stage]
        return _least_work(self._i_and_w[rank], i, (i + 1) * self._up_to[stage] - self._limits[rank])

    def before_i(self, stage: int, i: int) -> int:
        """Return the work of W before the i-th I of a stage, if all I before it have freed their part."""
        if self._limits is None:
            return 0
        rank = self._ranks[stage]
        return _least_work(self._w[rank], i + 1, (i + 1) * self._kept[rank] - self._limits[rank])


def memory_lags(problem: BoundedProblem) -> list[list[tuple[int, int, int]]]:
    """Return for each stage triples (s, a, b): its k-th I ends before the (k+a)-th F of s, its W by b.

    When the i-th F of stage s starts, i + 1 micro-batches have taken their activations on it and the rank's
    stages before it. Even if i of them have freed all they hold on the others of these stages, those on this
    one must fit into what the limit leaves beside the newest micro-batch.
    """
    lags: list[list[tuple[int, int, int]]] = [[] for _ in problem.rank_of_stage]
    full, kept = problem.costs.activation_bytes, problem.kept
    up_to, never = problem.sums_up_to(full), problem.num_microbatches
    for rank, limit in enumerate(problem.limits or ()):
        held = problem.stages_of_rank[rank]
        for index, stage in enumerate(held):
            for later in held[index:]:
                left = limit - up_to[later]
                by_i = left // full[stage] + 1 if full[stage] else never
                by_w = left // kept[stage] + 1 if kept[stage] else never
                lags[stage].append((later, by_i, by_w))
    return lags


def _by_efficiency(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted((piece for piece in pieces if piece[1]), key=lambda piece: Fraction(*piece))


def _least_work(pieces: list[tuple[int, int]], number: int, needed: int) -> int:
    """Return the least work that frees so much with up to `number` of each piece, parts of one included."""
    total = 0
    for work, size in pieces:
        if needed <= 0:
            break
        taken = min(needed, number * size)
        total += -(-taken * work // size)
        needed -= taken
    return total
