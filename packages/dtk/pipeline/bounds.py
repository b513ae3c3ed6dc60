"""How early a schedule can end at best: lower bounds on the makespan, from costs, placement and memory.

Each task gets a head, before which it cannot start in any schedule, and a tail, which must still pass after
its end. Micro-batches are alike, so an optimal schedule exists in which those of each kind and stage run in
ascending order, and heads and tails may rely on that order. The bound is the largest of head + time + tail,
and of Jackson's preemptive one-machine bound on each rank (Carlier and Pinson 1989): what a rank would need
if it could interrupt its tasks.

Transfers count as delays. Left out: what the compute of other ranks does to a rank beyond heads and tails, so
the bound need not be reached.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtk.pipeline.costs import StageCosts

__all__ = ["Bounds", "makespan_bound", "preemptive_bound"]

Times = NDArray[np.int64]  # [3, S, M]: forward, input gradient, weight gradient by stage and micro-batch
_F, _I, _W = range(3)


@dataclass(frozen=True)
class Bounds:
    """Heads and tails of all tasks.

    Attributes:
        durations_ns: [3, S].
        heads_ns: [3, S, M].
        tails_ns: [3, S, M].
        rank_of_stage: [S].
    """

    durations_ns: NDArray[np.int64]
    heads_ns: Times
    tails_ns: Times
    rank_of_stage: NDArray[np.int64]

    def makespan_ns(self) -> int:
        """Return the lower bound."""
        longest = int((self.heads_ns + self.durations_ns[:, :, None] + self.tails_ns).max())
        return max(longest, *(self._rank_bound(rank) for rank in range(int(self.rank_of_stage.max()) + 1)))

    def _rank_bound(self, rank: int) -> int:
        held = np.flatnonzero(self.rank_of_stage == rank)
        shape = self.heads_ns[:, held].shape
        times = np.broadcast_to(self.durations_ns[:, held, None], shape)
        return preemptive_bound(
            self.heads_ns[:, held].ravel().tolist(),
            times.ravel().tolist(),
            self.tails_ns[:, held].ravel().tolist(),
        )


def makespan_bound(
    rank_of_stage: Sequence[int],
    num_microbatches: int,
    costs: StageCosts,
    memory_limit: Sequence[int] | None = None,
) -> int:
    """Return what no schedule can beat, in nanoseconds, where gathers and the optimizer take no time.

    Args:
        rank_of_stage: For each stage the rank that holds it.
        num_microbatches: M.
        costs: Times and, for the limit, `activation_bytes` and `weight_grad_bytes`.
        memory_limit: For each rank, in the units of the costs' bytes; every rank must be able to hold one
            micro-batch. None for no limit.
    """
    chain = _Chain(rank_of_stage, num_microbatches, costs, memory_limit)
    durations = np.array([costs.forward_ns, costs.input_grad_ns, costs.weight_grad_ns], np.int64)
    return Bounds(durations, chain.heads(), chain.tails(), np.array(rank_of_stage)).makespan_ns()


def preemptive_bound(heads: Sequence[int], times: Sequence[int], tails: Sequence[int]) -> int:
    """Return when a machine that may interrupt its tasks has ended the last of them, its tail included.

    Jackson's rule is optimal there: always run, of the tasks whose head has passed, the one of the longest
    tail.
    """
    arriving = sorted(range(len(heads)), key=heads.__getitem__)
    ready: list[tuple[int, int]] = []
    left = list(times)
    now = latest = 0
    index = 0
    while index < len(arriving) or ready:
        if not ready:
            now = max(now, heads[arriving[index]])
        while index < len(arriving) and heads[arriving[index]] <= now:
            task = arriving[index]
            heapq.heappush(ready, (-tails[task], task))
            index += 1
        tail, task = ready[0]
        until = now + left[task]
        if index < len(arriving) and heads[arriving[index]] < until:
            left[task] -= heads[arriving[index]] - now
            now = heads[arriving[index]]
            continue
        heapq.heappop(ready)
        now = until
        latest = max(latest, now - tail)
    return latest


class _Chain:
    """The dependencies that every schedule obeys, memory's among them."""

    def __init__(
        self,
        rank_of_stage: Sequence[int],
        num_microbatches: int,
        costs: StageCosts,
        memory_limit: Sequence[int] | None,
    ) -> None:
        self.stages, self.microbatches = len(rank_of_stage), num_microbatches
        self.forward, self.input_grad, self.weight_grad = (
            costs.forward_ns,
            costs.input_grad_ns,
            costs.weight_grad_ns,
        )
        self.ranks = rank_of_stage
        self.sends = [
            costs.activation_transfer_ns[stage] if rank_of_stage[stage] != rank_of_stage[stage + 1] else 0
            for stage in range(self.stages - 1)
        ]
        self.returns = [0] + [
            costs.gradient_transfer_ns[stage] if rank_of_stage[stage] != rank_of_stage[stage - 1] else 0
            for stage in range(1, self.stages)
        ]
        # For each stage the stages of its rank up to itself.
        self.before = [
            [other for other in range(stage + 1) if rank_of_stage[other] == rank_of_stage[stage]]
            for stage in range(self.stages)
        ]
        self.lags = [self._lags(stage, costs, memory_limit) for stage in range(self.stages)]

    def _lags(
        self, stage: int, costs: StageCosts, memory_limit: Sequence[int] | None
    ) -> list[tuple[int, int]]:
        """Return pairs (other stage of the rank, lag): F(stage, k) starts after the end of W(other, k - lag).

        At that time the rank holds the activations of micro-batch k on all its stages up to this one, and of
        the other stage those micro-batches whose W has not ended, each by at least the smaller of its two
        sizes.
        """
        if memory_limit is None:
            return []
        before = self.before[stage]
        free = memory_limit[self.ranks[stage]] - sum(costs.activation_bytes[other] for other in before)
        lags = []
        for other in before:
            size = min(costs.activation_bytes[other], costs.weight_grad_bytes[other])
            if size > 0:
                lags.append((other, free // size + 1))
        return lags

    def heads(self) -> Times:
        """Return for each task when it can start at the earliest."""
        heads = np.zeros((3, self.stages, self.microbatches), np.int64).tolist()
        first = self._first_starts()
        for k in range(self.microbatches):
            for stage in range(self.stages):
                heads[_F][stage][k] = self._forward_head(heads, first, stage, k)
            for stage in reversed(range(self.stages)):
                heads[_I][stage][k] = self._input_grad_head(heads, first, stage, k)
                ended = heads[_I][stage][k] + self.input_grad[stage]
                earlier = heads[_W][stage][k - 1] + self.weight_grad[stage] if k else 0
                heads[_W][stage][k] = max(ended, earlier)
        return np.array(heads, np.int64)

    def _first_starts(self) -> list[int]:
        """Return for each stage when its rank can start anything at all."""
        arrival, now = [], 0
        for stage in range(self.stages):
            arrival.append(now)
            now += self.forward[stage] + (self.sends[stage] if stage + 1 < self.stages else 0)
        return [arrival[self.before[stage][0]] for stage in range(self.stages)]

    def _forward_head(self, heads: list[list[list[int]]], first: list[int], stage: int, k: int) -> int:
        # What the rank has certainly run before: the forwards up to this one, and what had to free memory.
        load = sum(self.forward[other] * (k + 1) for other in self.before[stage]) - self.forward[stage]
        head = 0
        for other, lag in self.lags[stage]:
            if k >= lag:
                head = max(head, heads[_W][other][k - lag] + self.weight_grad[other])
                load += (k - lag + 1) * (self.input_grad[other] + self.weight_grad[other])
        head = max(head, first[stage] + load)
        if k:
            head = max(head, heads[_F][stage][k - 1] + self.forward[stage])
        if stage:
            head = max(head, heads[_F][stage - 1][k] + self.forward[stage - 1] + self.sends[stage - 1])
        return head

    def _input_grad_head(self, heads: list[list[list[int]]], first: list[int], stage: int, k: int) -> int:
        load = sum(
            self.forward[other] * (k + 1) + (self.input_grad[other] * (k + 1) if other >= stage else 0)
            for other in range(self.stages)
            if self.ranks[other] == self.ranks[stage]
        )
        head = first[stage] + load - self.input_grad[stage]
        if stage + 1 < self.stages:
            head = max(head, heads[_I][stage + 1][k] + self.input_grad[stage + 1] + self.returns[stage + 1])
        else:
            head = max(head, heads[_F][stage][k] + self.forward[stage])
        return max(head, heads[_I][stage][k - 1] + self.input_grad[stage]) if k else head

    def tails(self) -> Times:
        """Return for each task what must pass after its end, at the least."""
        tails = np.zeros((3, self.stages, self.microbatches), np.int64).tolist()
        for k in reversed(range(self.microbatches)):
            for stage in range(self.stages):
                tails[_W][stage][k] = self._weight_grad_tail(tails, stage, k)
                tails[_I][stage][k] = self._input_grad_tail(tails, stage, k)
            for stage in reversed(range(self.stages)):
                tails[_F][stage][k] = self._forward_tail(tails, stage, k)
        return np.array(tails, np.int64)

    def _weight_grad_tail(self, tails: list[list[list[int]]], stage: int, k: int) -> int:
        tail = (self.microbatches - 1 - k) * self.weight_grad[stage]
        if k + 1 < self.microbatches:
            tail = max(tail, tails[_W][stage][k + 1] + self.weight_grad[stage])
        for other in range(stage, self.stages):
            for held, lag in self.lags[other]:
                if held == stage and k + lag < self.microbatches:
                    tail = max(tail, self.forward[other] + tails[_F][other][k + lag])
        return tail

    def _input_grad_tail(self, tails: list[list[list[int]]], stage: int, k: int) -> int:
        later = self.microbatches - k
        load = sum((self.input_grad[other] + self.weight_grad[other]) * later for other in self.before[stage])
        tail = max(load - self.input_grad[stage], tails[_W][stage][k] + self.weight_grad[stage])
        if stage:
            tail = max(tail, self.returns[stage] + self.input_grad[stage - 1] + tails[_I][stage - 1][k])
        if k + 1 < self.microbatches:
            tail = max(tail, self.input_grad[stage] + tails[_I][stage][k + 1])
        return tail

    def _forward_tail(self, tails: list[list[list[int]]], stage: int, k: int) -> int:
        later = self.microbatches - k
        load = 0
        for other in range(self.stages):
            if self.ranks[other] == self.ranks[stage]:
                after = self.forward[other] if other >= stage else 0
                load += (after + self.input_grad[other] + self.weight_grad[other]) * later
        tail = max(load - self.forward[stage], tails[_I][stage][k] + self.input_grad[stage])
        if stage + 1 < self.stages:
            tail = max(tail, self.sends[stage] + self.forward[stage + 1] + tails[_F][stage + 1][k])
        if k + 1 < self.microbatches:
            tail = max(tail, self.forward[stage] + tails[_F][stage][k + 1])
        return tail
