"""What an event simulation runs: tasks that take time, wait for others, and share resources one at a time.

Nothing depends on how tasks are numbered, or on the order of the edges: each task has a position on its
resource, distinct there, which decides all ties.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["DeadlockError", "TaskGraph"]

MAX_TASKS = 2**31 - 1


class DeadlockError(Exception):
    """Some tasks can never start: they wait for each other, in the graph or in the queue of a resource.

    Attributes:
        tasks: All that never start, ascending.
    """

    def __init__(self, tasks: NDArray[np.int64]) -> None:
        super().__init__(f"{len(tasks)} tasks can never start; the first is {tasks[0]}")
        self.tasks = tasks


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Tasks 0 to N - 1 as arrays, which are checked and then read only.

    Attributes:
        durations_ns: [N] int64, 0 or more.
        resources: [N] int32, the resource that the task occupies while it runs; -1 for none.
        positions: [N] int64, the task's place on its resource.
        predecessor_offsets: [N + 1] int64; task i waits for the end of `predecessors` from offset i to i + 1.
        predecessors: [E] int32.
        first_ready: [R] uint8, one a resource. 0: it runs its tasks in ascending position, and waits where
            the next one is not ready. 1: whenever it is free it takes the task that has been ready longest,
            the lowest position among equals.
    """

    durations_ns: NDArray[np.int64]
    resources: NDArray[np.int32]
    positions: NDArray[np.int64]
    predecessor_offsets: NDArray[np.int64]
    predecessors: NDArray[np.int32]
    first_ready: NDArray[np.uint8]

    def __post_init__(self) -> None:
        """Check shapes, types and ranges.

        Raises:
            ValueError: If something does not fit together, or a duration is negative.
        """
        kinds = {
            "durations_ns": np.int64, "resources": np.int32, "positions": np.int64,
            "predecessor_offsets": np.int64, "predecessors": np.int32, "first_ready": np.uint8,
        }  # fmt: skip
        for name, dtype in kinds.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(f"{name} must be a contiguous array of {np.dtype(dtype)} with one axis")
            array.flags.writeable = False
        self._check_ranges()

    def _check_ranges(self) -> None:
        offsets, num_tasks = self.predecessor_offsets, self.num_tasks
        if num_tasks > MAX_TASKS:
            raise ValueError(f"at most {MAX_TASKS} tasks, got {num_tasks}")
        if len(self.resources) != num_tasks or len(self.positions) != num_tasks:
            raise ValueError("resources and positions need one entry a task")
        if len(offsets) != num_tasks + 1 or offsets[0] != 0 or offsets[-1] != len(self.predecessors):
            raise ValueError("predecessor_offsets must run from 0 to the number of predecessors")
        if np.any(offsets[1:] < offsets[:-1]):
            raise ValueError("predecessor_offsets must not descend")
        if num_tasks and self.durations_ns.min() < 0:
            raise ValueError("a duration is negative")
        _check_range("predecessors", self.predecessors, 0, num_tasks)
        _check_range("resources", self.resources, -1, len(self.first_ready))

    @property
    def num_tasks(self) -> int:
        """The number of tasks, N."""
        return len(self.durations_ns)

    @classmethod
    def of(
        cls,
        durations_ns: Sequence[int],
        edges: Iterable[tuple[int, int]] = (),
        *,
        resources: Sequence[int] | None = None,
        positions: Sequence[int] | None = None,
        first_ready: Sequence[bool] = (),
    ) -> Self:
        """Return the graph of small lists: an edge is (what ends first, what waits for it).

        Tasks have no resource unless told otherwise, and run in the order of their numbers.
        """
        num_tasks = len(durations_ns)
        waits: list[list[int]] = [[] for _ in range(num_tasks)]
        for before, after in edges:
            waits[after].append(before)
        offsets = np.cumsum([0, *map(len, waits)], dtype=np.int64)
        return cls(
            np.array(durations_ns, np.int64),
            np.array([-1] * num_tasks if resources is None else resources, np.int32),
            np.array(range(num_tasks) if positions is None else positions, np.int64),
            offsets,
            np.array([before for each in waits for before in each], np.int32),
            np.array(first_ready, np.uint8),
        )


def _check_range(name: str, array: NDArray[np.int32], low: int, high: int) -> None:
    if len(array) and not low <= array.min() <= array.max() < high:
        raise ValueError(f"{name} must lie from {low} to {high - 1}")
