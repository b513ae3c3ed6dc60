"""The shortest makespan of tiny cases, by trying every order of every rank. Slow, and sure."""

from collections.abc import Sequence

from dtk.pipeline.costs import StageCosts

Job = tuple[str, int, int]


def at_rank(values: tuple[int, ...], rank: int, change: int) -> tuple[int, ...]:
    return (*values[:rank], values[rank] + change, *values[rank + 1 :])


class Search:
    """Depth first: append any job that can run to its rank, where it starts as early as it can."""

    def __init__(
        self,
        costs: StageCosts,
        rank_of_stage: tuple[int, ...],
        num_microbatches: int,
        limits: Sequence[int] | None = None,
        fused: bool = False,
    ) -> None:
        self.costs, self.ranks, self.limits = costs, rank_of_stage, limits
        self.last = len(rank_of_stage) - 1
        self.backward = "B" if fused else "I"
        kinds = "FB" if fused else "FIW"
        self.jobs = [
            (kind, stage, m)
            for stage in range(self.last + 1)
            for m in range(num_microbatches)
            for kind in kinds
        ]
        self.length = {
            "F": costs.forward_ns,
            "I": costs.input_grad_ns,
            "W": costs.weight_grad_ns,
            "B": tuple(i + w for i, w in zip(costs.input_grad_ns, costs.weight_grad_ns, strict=True)),
        }
        self.num_ranks = max(rank_of_stage) + 1
        self.best = 2**62
        self.seen: set[tuple] = set()

    def run(self) -> int:
        work = [0] * self.num_ranks
        for kind, stage, _ in self.jobs:
            work[self.ranks[stage]] += self.length[kind][stage]
        self.extend(frozenset(), {}, (0,) * self.num_ranks, {}, (0,) * self.num_ranks, tuple(work))
        return self.best

    def extend(
        self,
        done: frozenset[Job],
        arrival: dict[Job, int],
        ends: tuple[int, ...],
        streams: dict[tuple[int, int], int],
        held: tuple[int, ...],
        work: tuple[int, ...],
    ) -> None:
        if max(map(int.__add__, ends, work)) >= self.best:
            return
        if len(done) == len(self.jobs):
            self.best = max(ends)
            return
        open_arrivals = tuple(sorted((job, max(at, 0)) for job, at in arrival.items() if job not in done))
        state = (done, ends, open_arrivals, tuple(sorted(streams.items())))
        if state in self.seen:
            return
        self.seen.add(state)
        for job in self.jobs:
            if job not in done and (job in arrival or job[:2] == ("F", 0)):
                self.append(job, done, arrival, ends, streams, held, work)

    def append(self, job, done, arrival, ends, streams, held, work) -> None:  # type: ignore[no-untyped-def]
        kind, stage, m = job
        rank = self.ranks[stage]
        full, lesser = self.costs.activation_bytes[stage], self.costs.weight_grad_bytes[stage]
        held = at_rank(held, rank, {"F": full, "I": lesser - full, "W": -lesser, "B": -full}[kind])
        if self.limits is not None and held[rank] > self.limits[rank]:
            return
        length = self.length[kind][stage]
        end = max(ends[rank], arrival.get(job, 0)) + length
        arrival, streams = dict(arrival), dict(streams)
        if kind == "F" and stage == self.last:
            arrival[self.backward, stage, m] = end
        elif kind == "F":
            self.deliver(("F", stage + 1, m), stage, end, self.costs.activation_transfer_ns, arrival, streams)
        elif kind != "W":
            if kind == "I":
                arrival["W", stage, m] = end
            if stage > 0:
                to = (kind, stage - 1, m)
                self.deliver(to, stage, end, self.costs.gradient_transfer_ns, arrival, streams)
        ends = at_rank(ends, rank, end - ends[rank])
        self.extend(done | {job}, arrival, ends, streams, held, at_rank(work, rank, -length))

    def deliver(self, job: Job, stage: int, end: int, times, arrival, streams) -> None:  # type: ignore[no-untyped-def]
        source, target = self.ranks[stage], self.ranks[job[1]]
        if source != target:
            end = max(end, streams.get((source, target), 0)) + times[stage]
            streams[source, target] = end
        arrival[job] = end
