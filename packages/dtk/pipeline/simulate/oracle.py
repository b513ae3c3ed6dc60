"""The simulator in plain Python, straight from the rules: what the native engine is compared with.

Each rank is a process that walks down its list; it sleeps while it computes, and waits for signals. Streams
take what they are given one after another. What happens comes out of one queue of events.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from dtk.pipeline.action import COMPUTE_KINDS, Action, Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.faults import check_actions, stuck
from dtk.pipeline.simulate.oracle_memory import Holdings
from dtk.pipeline.simulate.result import (
    IdleCause,
    MemoryKind,
    MemoryStep,
    Simulation,
    StreamKind,
    Task,
    TrafficKind,
)

__all__ = ["Oracle"]

_BACKWARDS = frozenset({Kind.FULL_BACKWARD, Kind.INPUT_GRAD})
_GRADIENT_MAKERS = frozenset({Kind.FULL_BACKWARD, Kind.WEIGHT_GRAD})
_STREAMS = list(StreamKind)


class _Signal(NamedTuple):
    """Something that happens once: a part of an action ends, its output arrives, a gather ends."""

    what: str
    kind: str  # "F", "B" (of either backward), "I", "UNSHARD"
    stage: int
    number: int  # micro-batch, or the how-manieth gather


class _Need(NamedTuple):
    """What a part of an action waits for."""

    signal: _Signal
    cause: IdleCause | None = None  # of the time that the rank may stand still for it
    made: _Signal | None = None  # when what has to arrive was ready to be sent


_Process = Generator[int | _Signal, None, None]  # yields how long it sleeps, or what it waits for


class Oracle:
    """One run: everything is known when the constructor returns.

    Raises:
        InputError: If the schedule cannot run.
    """

    def __init__(self, schedule: Schedule, costs: StageCosts, *, synchronise_optimizer: bool) -> None:
        check_actions(schedule)
        ranks = range(schedule.num_ranks)
        self.schedule, self.costs = schedule, costs
        self.held, self.chunks = Holdings(), Holdings()
        self._tasks: list[Task] = []
        self.idle: list[Counter[IdleCause]] = [Counter() for _ in ranks]
        self.compute_ns = [0 for _ in ranks]
        self.counts: Counter[tuple[int, Kind]] = Counter()
        self.traffic: list[Counter[TrafficKind]] = [Counter() for _ in ranks]
        self.computed_at, self.reduced_at, self.last_end = [0 for _ in ranks], [0 for _ in ranks], 0
        self._now = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._num_events = 0
        self._happened: dict[_Signal, int] = {}
        self._waiting: defaultdict[_Signal, list[_Process]] = defaultdict(list)
        self._stream_free_at: Counter[tuple[StreamKind, int, int | None]] = Counter()
        self._gathers: Counter[int] = Counter()
        self._gathered_at: Counter[int] = Counter()
        self._blocked: dict[int, int] = {}  # where a rank waits in its list
        self._run()
        self.makespan_ns = self._step_optimizers(synchronised=synchronise_optimizer)

    # -- time ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        sharded = {
            action.stage for row in self.schedule.actions for action in row if action.kind == Kind.UNSHARD
        }
        for stage, rank in enumerate(self.schedule.rank_of_stage):
            if stage not in sharded:
                size = self.costs.parameter_bytes[stage]
                self.held.hold(("always", stage), rank, MemoryKind.PARAMETER, size, 0)
        for rank in range(self.schedule.num_ranks):
            self._resume(self._rank(rank))
        while self._events:
            self._now, _, happen = heapq.heappop(self._events)
            happen()
        if self._blocked:
            raise stuck(self.schedule, self._blocked)

    def _at(self, time: int, happen: Callable[[], None]) -> None:
        self._num_events += 1
        heapq.heappush(self._events, (time, self._num_events, happen))

    def _resume(self, process: _Process) -> None:
        for wish in process:
            if isinstance(wish, int):
                self._at(self._now + wish, lambda: self._resume(process))
                return
            if wish not in self._happened:
                self._waiting[wish].append(process)
                return

    def _signal(self, signal: _Signal) -> None:
        self._happened[signal] = self._now
        for process in self._waiting.pop(signal, ()):
            self._resume(process)

    def _on_stream(
        self, stream: StreamKind, rank: int, duration: int, action: Action, peer: int | None = None
    ) -> tuple[int, int]:
        """Give a stream something to do, and return when it starts and when it ends."""
        start = max(self._now, self._stream_free_at[stream, rank, peer])
        end = self._stream_free_at[stream, rank, peer] = start + duration
        self.last_end = max(self.last_end, end)
        if duration or stream is StreamKind.COMPUTE:
            self._tasks.append(Task(rank, stream, action, start, end, peer))
        return start, end

    # -- what a rank does ------------------------------------------------------------------------------------

    def _rank(self, rank: int) -> _Process:
        computed_before = False
        for place, action in enumerate(self.schedule.actions[rank]):
            self._blocked[rank] = place
            self.counts[rank, action.kind] += 1
            if action.kind in COMPUTE_KINDS:
                yield from self._compute(rank, action, first=not computed_before)
                computed_before = True
            elif action.kind is Kind.UNSHARD:
                self._unshard(rank, action)
            elif action.kind is Kind.RESHARD:
                self.held.free(("parameters", action.stage), max(self._now, self._gathered_at[action.stage]))
            elif action.kind is Kind.REDUCE_GRAD:
                self._reduce_grad(rank, action)
        self._blocked.pop(rank, None)

    def _compute(self, rank: int, action: Action, *, first: bool) -> _Process:
        free_at = self._now
        needs = [need for part in action.parts for need in self._needs(part)]
        for need in needs:
            yield need.signal
        self._account(rank, free_at, needs, first=first)
        duration = sum(map(self._duration, action.parts))
        self._on_stream(StreamKind.COMPUTE, rank, duration, action)
        for part in action.parts:
            self._hold_at_start(rank, part)
        yield duration
        self.compute_ns[rank] += duration
        self.computed_at[rank] = self._now
        for part in action.parts:
            self._free_at_end(rank, part)
        for part in action.parts:
            self._publish(rank, part)

    def _duration(self, part: Action) -> int:
        stage, costs = part.stage, self.costs
        return {
            Kind.FORWARD: costs.forward_ns[stage],
            Kind.INPUT_GRAD: costs.input_grad_ns[stage],
            Kind.WEIGHT_GRAD: costs.weight_grad_ns[stage],
            Kind.FULL_BACKWARD: costs.input_grad_ns[stage] + costs.weight_grad_ns[stage],
        }[part.kind]

    def _needs(self, part: Action) -> Iterator[_Need]:
        stage, microbatch = part.stage, part.microbatch or 0
        if part.kind is Kind.FORWARD and stage > 0:
            made = _Signal("ended", "F", stage - 1, microbatch)
            yield _Need(made._replace(what="arrived"), IdleCause.ACTIVATION, made)
        if part.kind in _BACKWARDS:
            yield _Need(_Signal("ended", "F", stage, microbatch))
            if stage < self.schedule.num_stages - 1:
                made = _Signal("ended", "B", stage + 1, microbatch)
                yield _Need(made._replace(what="arrived"), IdleCause.GRADIENT, made)
        if part.kind is Kind.WEIGHT_GRAD:
            yield _Need(_Signal("ended", "I", stage, microbatch))
        if count := self._gathers[stage]:
            yield _Need(_Signal("ended", "UNSHARD", stage, count), IdleCause.UNSHARD)

    def _publish(self, rank: int, part: Action) -> None:
        """Tell who waits for the end of a part, and send its output."""
        stage, microbatch = part.stage, part.microbatch or 0
        self._signal(_Signal("ended", part.kind, stage, microbatch))
        if part.kind is Kind.INPUT_GRAD:
            self._signal(_Signal("ended", "B", stage, microbatch))
        if part.kind is Kind.FORWARD and stage < self.schedule.num_stages - 1:
            self._send(rank, part, stage + 1, self.costs.activation_transfer_ns[stage])
        elif part.kind in _BACKWARDS and stage > 0:
            self._send(rank, part, stage - 1, self.costs.gradient_transfer_ns[stage])

    def _send(self, rank: int, part: Action, receiver: int, duration: int) -> None:
        peer = self.schedule.rank_of_stage[receiver]
        kind = "F" if part.kind is Kind.FORWARD else "B"
        arrived = _Signal("arrived", kind, part.stage, part.microbatch or 0)
        if peer == rank:
            self._signal(arrived)
            return
        what = TrafficKind.ACTIVATION if kind == "F" else TrafficKind.GRADIENT
        self.traffic[rank][what] += self.costs.activation_message_bytes[min(part.stage, receiver)]
        _, end = self._on_stream(StreamKind.SEND, rank, duration, part, peer)
        self._at(end, lambda: self._signal(arrived))

    def _unshard(self, rank: int, action: Action) -> None:
        stage = action.stage
        start, end = self._on_stream(StreamKind.UNSHARD, rank, self.costs.unshard_ns[stage], action)
        self._gathers[stage] += 1
        gathered = _Signal("ended", "UNSHARD", stage, self._gathers[stage])
        self._at(end, lambda: self._signal(gathered))
        self._gathered_at[stage] = end
        size = self.costs.parameter_bytes[stage]
        self.held.hold(("parameters", stage), rank, MemoryKind.PARAMETER, size, start)
        self.traffic[rank][TrafficKind.UNSHARD] += self.costs.parameter_bytes[stage]

    def _reduce_grad(self, rank: int, action: Action) -> None:
        stage = action.stage
        _, end = self._on_stream(StreamKind.REDUCE, rank, self.costs.reduce_grad_ns[stage], action)
        self.held.free(("gradients", stage), end)
        self.reduced_at[rank] = end
        self.traffic[rank][TrafficKind.REDUCE_GRAD] += self.costs.gradient_bytes[stage]

    def _step_optimizers(self, *, synchronised: bool) -> int:
        """Let the optimizers step after everything that they wait for, and return the makespan."""
        makespan = self.last_end
        for rank, stages in enumerate(self.schedule.stages_of_rank):
            computed = max(self.computed_at) if synchronised else self.computed_at[rank]
            start = max(computed, *(self.reduced_at if synchronised else [self.reduced_at[rank]]))
            duration = sum(self.costs.optimizer_ns[stage] for stage in stages)
            if duration:
                self._tasks.append(Task(rank, StreamKind.COMPUTE, None, start, start + duration))
            makespan = max(makespan, start + duration)
            self.compute_ns[rank] += duration
            self.idle[rank][IdleCause.DRAIN] += computed - self.computed_at[rank]
            self.idle[rank][IdleCause.REDUCE] += start - computed
        for rank, idle in enumerate(self.idle):
            idle[IdleCause.DRAIN] += makespan - self.compute_ns[rank] - idle.total()
        return makespan

    # -- what it costs ---------------------------------------------------------------------------------------

    def _account(self, rank: int, free_at: int, needs: list[_Need], *, first: bool) -> None:
        """Say why the rank stood still until now: for what came last, of equals for the parameters first."""
        gap = self._now - free_at
        if first or not gap:
            self.idle[rank][IdleCause.FILL] += gap
            return
        order = [IdleCause.GRADIENT, IdleCause.ACTIVATION, IdleCause.UNSHARD]
        causes = [
            (self._happened[each.signal], order.index(each.cause), each) for each in needs if each.cause
        ]
        last = max(causes, key=lambda each: each[:2])[2]
        assert last.cause is not None
        waited = gap
        if last.made:
            waited = max(0, self._happened[last.made] - free_at)
            self.idle[rank][IdleCause.TRANSFER] += gap - waited
        self.idle[rank][last.cause] += waited

    def _hold_at_start(self, rank: int, part: Action) -> None:
        stage, key = part.stage, (part.stage, part.microbatch)
        if part.kind is Kind.FORWARD:
            size = self.costs.activation_bytes[stage]
            self.held.hold(("activation", key), rank, MemoryKind.ACTIVATION, size, self._now)
            self.chunks.hold(key, rank, MemoryKind.ACTIVATION, 1, self._now)
        elif part.kind in _GRADIENT_MAKERS:
            size = self.costs.gradient_bytes[stage]
            self.held.hold(("gradients", stage), rank, MemoryKind.GRADIENT, size, self._now)

    def _free_at_end(self, rank: int, part: Action) -> None:
        key = (part.stage, part.microbatch)
        if part.kind in _BACKWARDS:
            self.held.free(("activation", key), self._now)
        if part.kind is Kind.INPUT_GRAD:
            size = self.costs.weight_grad_bytes[part.stage]
            self.held.hold(("input", key), rank, MemoryKind.WEIGHT_GRAD_INPUT, size, self._now)
        elif part.kind in _GRADIENT_MAKERS:
            self.held.free(("input", key), self._now)
            self.chunks.free(key, self._now)

    # -- what it tells ---------------------------------------------------------------------------------------

    def tasks(self) -> list[Task]:
        """Return what took time: by rank, then stream, each in its order."""
        return sorted(self._tasks, key=lambda task: (task.rank, _STREAMS.index(task.stream)))

    def simulation(self) -> Simulation:
        """Return the result."""
        ranks = range(self.schedule.num_ranks)
        return Simulation(
            makespan_ns=self.makespan_ns,
            compute_ns=tuple(self.compute_ns),
            idle_ns=tuple({cause: idle[cause] for cause in IdleCause if idle[cause]} for idle in self.idle),
            peak_bytes=tuple(self.held.peak(rank) for rank in ranks),
            peak_bytes_by_kind=tuple(
                {kind: self.held.peak(rank, kind) for kind in MemoryKind} for rank in ranks
            ),
            peak_activation_chunks=tuple(self.chunks.peak(rank) for rank in ranks),
            gathers=tuple(self.counts[rank, Kind.UNSHARD] for rank in ranks),
            reduce_scatters=tuple(self.counts[rank, Kind.REDUCE_GRAD] for rank in ranks),
            traffic_bytes=tuple({kind: sent[kind] for kind in TrafficKind} for sent in self.traffic),
        )

    def memory_steps(self) -> list[MemoryStep]:
        """Return what ranks hold over time, where it changes."""
        return self.held.steps()
