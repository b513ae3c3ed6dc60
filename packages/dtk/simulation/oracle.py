"""The event core in plain Python: slow, short, and what the native engine is compared with.

Time passes from one end of a task to the next. At one time all ends count first, and what they let start on
resources that run by position, tasks that take no time included; then the first-ready resources choose.
"""

import heapq
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dtk.simulation.graph import DeadlockError, TaskGraph

__all__ = ["start_times"]

_MAX_TIME_NS = 2**63 - 1


def start_times(graph: TaskGraph) -> NDArray[np.int64]:
    """Return the start of each task; see `dtk.simulation.engine.start_times`."""
    run = _Run(graph)
    run.run()
    if unfinished := [task for task, start in enumerate(run.starts) if start is None]:
        raise DeadlockError(np.array(unfinished, np.int64))
    return np.array(run.starts, np.int64)


class _Run:
    def __init__(self, graph: TaskGraph) -> None:
        self.durations: list[int] = graph.durations_ns.tolist()
        self.resources: list[int] = graph.resources.tolist()
        self.positions: list[int] = graph.positions.tolist()
        self.first_ready: list[int] = graph.first_ready.tolist()
        offsets, predecessors = graph.predecessor_offsets.tolist(), graph.predecessors.tolist()
        self.missing = [end - start for start, end in pairwise(offsets)]
        self.successors: list[list[int]] = [[] for _ in self.durations]
        for task in range(graph.num_tasks):
            for predecessor in predecessors[offsets[task] : offsets[task + 1]]:
                self.successors[predecessor].append(task)
        self.orders = _orders(self.resources, self.positions, len(self.first_ready))
        self.ready: set[int] = set()
        self.queues: list[list[tuple[int, int, int]]] = [[] for _ in self.first_ready]  # when, position, task
        self.busy = [False] * len(self.first_ready)
        self.starts: list[int | None] = [None] * graph.num_tasks
        self.ends: list[tuple[int, int]] = []  # when, task

    def run(self) -> None:
        for task, missing in enumerate(self.missing):
            if missing == 0:
                self.is_ready(task, 0)
        self.choose(0)
        while self.ends:
            now = self.ends[0][0]
            while self.ends and self.ends[0][0] == now:
                self.has_ended(heapq.heappop(self.ends)[1], now)
            self.choose(now)

    def is_ready(self, task: int, now: int) -> None:
        resource = self.resources[task]
        if resource < 0:
            self.start(task, now)
        elif self.first_ready[resource]:
            heapq.heappush(self.queues[resource], (now, self.positions[task], task))
        else:
            self.ready.add(task)
            self.go_on(resource, now)

    def start(self, task: int, now: int) -> None:
        self.starts[task] = now
        if (end := now + self.durations[task]) > _MAX_TIME_NS:
            raise OverflowError("a task ends after 2**63 - 1 ns")
        heapq.heappush(self.ends, (end, task))

    def has_ended(self, task: int, now: int) -> None:
        resource = self.resources[task]
        if resource >= 0:
            self.busy[resource] = False
            self.go_on(resource, now)
        for successor in self.successors[task]:
            self.missing[successor] -= 1
            if self.missing[successor] == 0:
                self.is_ready(successor, now)

    def go_on(self, resource: int, now: int) -> None:
        """Start the next task by position, if it is ready and the resource is free."""
        order = self.orders[resource]
        if not self.busy[resource] and order and order[-1] in self.ready:
            self.busy[resource] = True
            self.start(order.pop(), now)

    def choose(self, now: int) -> None:
        """Let each free resource take what has been ready longest."""
        for resource, queue in enumerate(self.queues):
            if queue and not self.busy[resource]:
                self.busy[resource] = True
                self.start(heapq.heappop(queue)[2], now)


def _orders(resources: list[int], positions: list[int], num_resources: int) -> list[list[int]]:
    """Return each resource's tasks, the last one first."""
    orders: list[list[int]] = [[] for _ in range(num_resources)]
    for task in sorted(range(len(resources)), key=lambda task: -positions[task]):
        resource = resources[task]
        if resource >= 0:
            if orders[resource] and positions[orders[resource][-1]] == positions[task]:
                raise ValueError(f"two tasks share position {positions[task]} on resource {resource}")
            orders[resource].append(task)
    return orders
