"""The simulator on whole arrays: the native engine times the task graph, numpy does the accounts."""

from collections.abc import Iterator

import numpy as np

from dtk.pipeline.action import Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.faults import stuck
from dtk.pipeline.simulate.listing import CODES, Indices, list_actions
from dtk.pipeline.simulate.memory import RankMemory, memory_by_rank, memory_steps
from dtk.pipeline.simulate.plan import make_plan
from dtk.pipeline.simulate.result import MemoryStep, Simulation, StreamKind, Task, TrafficKind
from dtk.pipeline.simulate.timing import idle_times, make_timing
from dtk.simulation.engine import start_times
from dtk.simulation.graph import DeadlockError

__all__ = ["ArraySimulation"]


class ArraySimulation:
    """One run: all times are known when the constructor returns.

    Raises:
        InputError: If the schedule cannot run.
    """

    def __init__(self, schedule: Schedule, costs: StageCosts, *, synchronise_optimizer: bool) -> None:
        self._schedule, self._costs = schedule, costs
        self._listing = list_actions(schedule)
        self._plan = make_plan(schedule, costs, self._listing)
        try:
            start = start_times(self._plan.graph, engine="native")
        except DeadlockError as error:
            raise stuck(schedule, self._blocked(error.tasks)) from None
        self._timing = make_timing(
            schedule, costs, self._listing, self._plan, start, synchronised=synchronise_optimizer
        )

    def simulation(self) -> Simulation:
        """Return the result."""
        listing, timing = self._listing, self._timing
        memories = list(self._memories())
        idle = idle_times(listing, self._plan, timing)
        gathers, reductions = (
            tuple(np.bincount(listing.rank[parts], minlength=self._schedule.num_ranks).tolist())
            for parts in (self._plan.unshard_parts, self._plan.reduce_parts)
        )
        return Simulation(
            makespan_ns=timing.makespan,
            compute_ns=tuple(self._compute_times().tolist()),
            idle_ns=idle,
            peak_bytes=tuple(memory.peak_bytes for memory in memories),
            peak_bytes_by_kind=tuple(memory.peak_bytes_by_kind for memory in memories),
            peak_activation_chunks=tuple(memory.peak_chunks for memory in memories),
            gathers=gathers,
            reduce_scatters=reductions,
            traffic_bytes=self._traffic(),
        )

    def tasks(self) -> list[Task]:
        """Return what took time: by rank, then stream, each in its order."""
        listing, plan, timing = self._listing, self._plan, self._timing
        starts, ends = timing.start.tolist(), timing.end.tolist()
        actions = [listing.actions[place] for place in listing.action_of_task.tolist()]
        num_compute = len(actions)
        streams = [StreamKind.COMPUTE] * num_compute
        peers: list[int | None] = [None] * num_compute
        ranks = np.repeat(np.arange(self._schedule.num_ranks), np.diff(listing.tasks_before_rank)).tolist()
        for stream, parts in (
            (StreamKind.SEND, plan.sending_parts),
            (StreamKind.UNSHARD, plan.unshard_parts),
            (StreamKind.REDUCE, plan.reduce_parts),
        ):
            actions += map(listing.part, parts.tolist())
            streams += [stream] * len(parts)
            peers += plan.receivers.tolist() if stream is StreamKind.SEND else [None] * len(parts)
            ranks += listing.rank[parts].tolist()
        tasks = list(map(Task, ranks, streams, actions, starts, ends, peers))
        tasks = [task for task in tasks if task.end_ns > task.start_ns or task.stream is StreamKind.COMPUTE]
        for rank, (start, end) in enumerate(zip(timing.optimizer_start, timing.optimizer_end, strict=True)):
            if end > start:
                tasks.append(Task(rank, StreamKind.COMPUTE, None, int(start), int(end)))
        order = list(StreamKind)
        return sorted(tasks, key=lambda task: (task.rank, order.index(task.stream)))

    def memory_steps(self) -> list[MemoryStep]:
        """Return what ranks hold over time, where it changes."""
        return memory_steps(self._memories())

    def _memories(self) -> Iterator[RankMemory]:
        return memory_by_rank(self._schedule, self._costs, self._listing, self._plan, self._timing)

    def _compute_times(self) -> Indices:
        timing, before = self._timing, self._listing.tasks_before_rank
        busy = np.concatenate([[0], np.cumsum(self._plan.graph.durations_ns[: before[-1]])])
        times: Indices = busy[before[1:]] - busy[before[:-1]] + timing.optimizer_end - timing.optimizer_start
        return times

    def _traffic(self) -> tuple[dict[TrafficKind, int], ...]:
        listing, plan, costs = self._listing, self._plan, self._costs
        is_forward = listing.kind[plan.sending_parts] == CODES[Kind.FORWARD]
        sent, returned = plan.sending_parts[is_forward], plan.sending_parts[~is_forward]
        message_bytes = np.array(costs.activation_message_bytes, np.int64)
        kinds = {
            TrafficKind.ACTIVATION: (sent, message_bytes),
            TrafficKind.GRADIENT: (
                returned,
                np.roll(message_bytes, 1),
            ),  # as large as what came the other way
            TrafficKind.UNSHARD: (plan.unshard_parts, np.array(costs.parameter_bytes, np.int64)),
            TrafficKind.REDUCE_GRAD: (plan.reduce_parts, np.array(costs.gradient_bytes, np.int64)),
        }
        totals = {}
        for kind, (parts, sizes) in kinds.items():
            totals[kind] = np.zeros(self._schedule.num_ranks, np.int64)
            np.add.at(totals[kind], listing.rank[parts], sizes[listing.stage[parts]])
        return tuple(
            {kind: int(total[rank]) for kind, total in totals.items()}
            for rank in range(self._schedule.num_ranks)
        )

    def _blocked(self, unfinished: Indices) -> dict[int, int]:
        """Return for each rank the place in its list of the first action that never starts."""
        listing = self._listing
        compute = unfinished[unfinished < len(listing.action_of_task)]
        row = np.searchsorted(listing.tasks_before_rank, compute, side="right") - 1
        ranks, first = np.unique(row, return_index=True)
        actions_before = np.cumsum([0, *map(len, self._schedule.actions)])
        places = listing.action_of_task[compute[first]] - actions_before[ranks]
        return dict(zip(ranks.tolist(), places.tolist(), strict=True))
