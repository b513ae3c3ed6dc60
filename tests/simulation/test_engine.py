"""Both event engines: hand-computed graphs, and the same answers on thousands of random ones."""

import os
import random
import signal
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.simulation.engine import Engine, start_times
from dtk.simulation.graph import DeadlockError, TaskGraph

ENGINES = [pytest.param("native", marks=pytest.mark.native), "python"]


@pytest.mark.parametrize("engine", ENGINES)
class TestByHand:
    def test_a_task_waits_for_the_latest_of_its_predecessors(self, engine: Engine) -> None:
        graph = TaskGraph.of([3, 5, 2, 0], [(0, 2), (1, 2), (2, 3)])
        assert start_times(graph, engine=engine).tolist() == [0, 0, 5, 7]

    def test_a_resource_runs_by_position_and_waits_for_the_next(self, engine: Engine) -> None:
        # Task 1 is ready at once, and still runs after task 2, which waits for task 0.
        graph = TaskGraph.of(
            [4, 1, 1], [(0, 2)], resources=[-1, 0, 0], positions=[0, 9, 8], first_ready=[False]
        )
        assert start_times(graph, engine=engine).tolist() == [0, 5, 4]

    def test_a_first_ready_resource_never_waits(self, engine: Engine) -> None:
        graph = TaskGraph.of(
            [4, 3, 1], [(0, 2)], resources=[-1, 0, 0], positions=[0, 9, 8], first_ready=[True]
        )
        assert start_times(graph, engine=engine).tolist() == [0, 0, 4]

    def test_first_ready_takes_what_waits_longest_and_then_by_position(self, engine: Engine) -> None:
        # Tasks 2, 3 and 4 get ready at 1, 2 and 2 while task 1 holds the resource until 5.
        graph = TaskGraph.of(
            [1, 5, 1, 1, 1, 2], [(0, 2), (5, 3), (5, 4)],
            resources=[-1, 0, 0, 0, 0, -1], positions=[0, 0, 9, 8, 7, 0], first_ready=[True],
        )  # fmt: skip
        assert start_times(graph, engine=engine).tolist() == [0, 0, 5, 7, 6, 0]

    def test_a_choice_waits_for_everything_that_takes_no_time(self, engine: Engine) -> None:
        # At 1 both 1 and, by way of two tasks without duration, 4 get ready: the position decides.
        graph = TaskGraph.of(
            [1, 1, 0, 0, 1], [(0, 1), (0, 2), (2, 3), (3, 4)],
            resources=[-1, 1, -1, 0, 1], positions=[0, 5, 0, 0, 4], first_ready=[False, True],
        )  # fmt: skip
        assert start_times(graph, engine=engine).tolist() == [0, 2, 1, 1, 1]

    def test_nothing_to_do(self, engine: Engine) -> None:
        assert start_times(TaskGraph.of([]), engine=engine).tolist() == []

    def test_a_cycle_and_all_behind_it_are_named(self, engine: Engine) -> None:
        graph = TaskGraph.of([1, 1, 1, 1], [(1, 2), (2, 1), (2, 3)])
        with pytest.raises(DeadlockError, match=r"^3 tasks can never start; the first is 1$") as caught:
            start_times(graph, engine=engine)
        assert caught.value.tasks.tolist() == [1, 2, 3]

    def test_an_order_against_the_edges_is_a_deadlock(self, engine: Engine) -> None:
        order = {"resources": [0, 0], "first_ready": [False]}
        with pytest.raises(DeadlockError):
            start_times(TaskGraph.of([1, 1], [(1, 0)], **order), engine=engine)
        free = TaskGraph.of([1, 1], [(1, 0)], resources=[0, 0], first_ready=[True])
        assert start_times(free, engine=engine).tolist() == [1, 0]

    @pytest.mark.parametrize("first_ready", [False, True])
    def test_times_beyond_64_bits_are_refused(self, engine: Engine, first_ready: bool) -> None:
        graph = TaskGraph.of([2**62, 2**62 - 1, 1], resources=[0, 0, 0], first_ready=[first_ready])
        with pytest.raises(OverflowError, match="a task ends after"):
            start_times(graph, engine=engine)
        graph = TaskGraph.of([2**62, 2**62 - 1], resources=[0, 0], first_ready=[first_ready])
        assert start_times(graph, engine=engine).tolist() == [0, 2**62]

    def test_one_position_twice_is_refused(self, engine: Engine) -> None:
        graph = TaskGraph.of([1, 1], resources=[0, 0], positions=[7, 7], first_ready=[True])
        with pytest.raises(ValueError, match="two tasks share position 7 on resource 0"):
            start_times(graph, engine=engine)


def random_graph(random_source: random.Random, *, deadlocks: bool = False) -> dict[str, list[int]]:
    """Return the arguments of `TaskGraph.of`, `edges` among them."""
    num_tasks, num_resources = random_source.randint(1, 30), random_source.randint(0, 4)
    longest = random_source.choice([0, 1, 3, 1000])
    order = random_source.sample(range(num_tasks), num_tasks)  # edges follow it, positions as well
    num_edges = random_source.randint(0, 2 * num_tasks)
    pairs = [sorted(random_source.choices(range(num_tasks), k=2)) for _ in range(num_edges)]
    edges = [(order[a], order[b]) for a, b in pairs if a != b]
    positions = [order.index(task) for task in range(num_tasks)]
    if deadlocks:
        edges += [(b, a) for a, b in edges[: random_source.randint(0, 2)]]
        random_source.shuffle(positions)
    return {
        "durations_ns": [random_source.randint(0, longest) for _ in range(num_tasks)],
        "edges": edges,
        "resources": [random_source.randint(-1, num_resources - 1) for _ in range(num_tasks)],
        "positions": positions,
        "first_ready": [random_source.random() < 0.5 for _ in range(num_resources)],
    }


def outcome(graph: TaskGraph, engine: Engine) -> tuple[str, list[int]]:
    try:
        return "starts", start_times(graph, engine=engine).tolist()
    except DeadlockError as error:
        return "deadlock", error.tasks.tolist()


@pytest.mark.native
@pytest.mark.parametrize("deadlocks", [False, True])
def test_the_engines_agree(deadlocks: bool) -> None:
    kinds = set()
    for seed in range(3000):
        graph = TaskGraph.of(**random_graph(random.Random(seed), deadlocks=deadlocks))
        native = outcome(graph, "native")
        assert native == outcome(graph, "python"), seed
        kinds.add(native[0])
    assert kinds == ({"starts", "deadlock"} if deadlocks else {"starts"})


@pytest.mark.parametrize("engine", ENGINES)
@given(st.randoms(use_true_random=False))
def test_the_numbering_does_not_matter(engine: Engine, source: random.Random) -> None:
    parts = random_graph(source)
    edges = parts["edges"]
    count = len(parts["durations_ns"])
    number = source.sample(range(count), count)  # of each task, the new one
    renamed = parts | {
        name: [parts[name][number.index(task)] for task in range(count)]
        for name in ("durations_ns", "resources", "positions")
    }
    renamed["edges"] = source.sample([(number[a], number[b]) for a, b in edges], len(edges))
    starts = start_times(TaskGraph.of(**parts), engine=engine)
    assert start_times(TaskGraph.of(**renamed), engine=engine)[number].tolist() == starts.tolist()


@pytest.mark.parametrize("engine", ENGINES)
@given(st.randoms(use_true_random=False))
def test_every_rule_holds_in_the_result(engine: Engine, source: random.Random) -> None:
    parts = random_graph(source)
    starts = start_times(TaskGraph.of(**parts), engine=engine).tolist()
    ends = [start + duration for start, duration in zip(starts, parts["durations_ns"], strict=True)]
    assert all(starts[after] >= ends[before] for before, after in parts["edges"])
    ready = [max((ends[a] for a, b in parts["edges"] if b == task), default=0) for task in range(len(ends))]
    for resource, first_ready in enumerate(parts["first_ready"]):
        tasks = [task for task in range(len(ends)) if parts["resources"][task] == resource]
        key = (lambda task: (starts[task], ends[task])) if first_ready else parts["positions"].__getitem__
        tasks.sort(key=key)
        assert all(ends[a] <= starts[b] for a, b in pairwise(tasks))
        free = [0, *(ends[task] for task in tasks)]
        if not first_ready:
            assert all(starts[b] == max(ready[b], free[i]) for i, b in enumerate(tasks))
        for i, task in enumerate(tasks):
            if first_ready:  # idle only while nothing is ready
                assert starts[task] == max(free[i], min(ready[b] for b in tasks[i:]))
    assert all(starts[task] == ready[task] for task in range(len(ends)) if parts["resources"][task] == -1)


ENDLESS = """
import numpy as np
from dtk.simulation.engine import start_times
from dtk.simulation.graph import TaskGraph

def arrays(count, dtype): return np.arange(count, dtype=dtype)
n = 3_000_000
graph = TaskGraph(np.ones(n, np.int64), np.zeros(n, np.int32), arrays(n, np.int64),
                  np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.ones(1, np.uint8))
start_times(graph, engine="native")
print("start", flush=True)
while True:
    start_times(graph, engine="native")
"""


@pytest.mark.native
def test_an_interrupt_ends_a_long_run() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "start\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.strip().endswith("KeyboardInterrupt")


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="a duration is negative"):
        TaskGraph.of([1, -1])
    with pytest.raises(ValueError, match="predecessors must lie from 0 to 1"):
        TaskGraph.of([1, 1], [(2, 0)])
    with pytest.raises(ValueError, match="resources must lie from -1 to 0"):
        TaskGraph.of([1], resources=[1], first_ready=[True])
    with pytest.raises(ValueError, match="one entry a task"):
        TaskGraph.of([1], resources=[], first_ready=[True])
    empty = np.zeros(0, np.int32)
    with pytest.raises(ValueError, match="durations_ns must be a contiguous array of int64"):
        TaskGraph(np.zeros(1, np.int32), empty, empty, empty, empty, empty)  # type: ignore[arg-type]
    one, many = np.zeros(1, np.int64), np.zeros(1, np.int32)
    for offsets, message in (([1, 0], "must run from 0"), ([0, 2], "must run from 0")):
        with pytest.raises(ValueError, match=message):
            TaskGraph(one, many, one, np.array(offsets), empty, np.zeros(1, np.uint8))
    two = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="must not descend"):
        TaskGraph(two, np.zeros(2, np.int32), two, np.array([0, 3, 1]), many, np.zeros(1, np.uint8))
