"""Turns, medians and the budget, by clocks that the tests set."""

from collections.abc import Callable

import pytest

from dtk_kernels.gpu_bench.timing import Budget, OutOfTimeError, Times, interleaved, one_by_one


class SetClock:
    """A clock of wall time that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class CallClock:
    """Says of each call how long it took, from what the call returns; wall time passes meanwhile."""

    def __init__(self, wall: SetClock) -> None:
        self._wall = wall

    def time(self, call: Callable[[], object]) -> float:
        seconds = call()
        assert isinstance(seconds, float)
        self._wall.now_s += seconds
        return seconds


def test_budget() -> None:
    wall = SetClock()
    budget = Budget(10.0, wall)
    assert budget.allows()
    assert budget.allows(9.9)
    assert not budget.allows(10.0)
    wall.now_s += 7.5
    assert budget.spent_s == 7.5
    assert not budget.allows(2.6)
    wall.now_s += 2.5
    assert not budget.allows()


def test_contenders_take_turns_and_each_comes_first() -> None:
    order: list[str] = []

    def contender(name: str) -> Callable[[], float]:
        def call() -> float:
            order.append(name)
            return 1.0

        return call

    wall = SetClock()
    calls = {name: contender(name) for name in "abc"}
    seconds = interleaved(calls, CallClock(wall), Budget(1e9, wall), rounds=4, warm_up=1)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert seconds == {name: [1.0] * 4 for name in "abc"}


def test_rounds_end_with_the_budget() -> None:
    wall = SetClock()
    clock = CallClock(wall)
    # Each round takes 3 s; after a warm-up of 3 s there is time for the start of four.
    seconds = interleaved(
        {"a": lambda: 1.0, "b": lambda: 2.0}, clock, Budget(15.0, wall), rounds=9, warm_up=1
    )
    assert seconds == {"a": [1.0] * 4, "b": [2.0] * 4}


def test_two_rounds_are_too_few() -> None:
    wall = SetClock()
    with pytest.raises(OutOfTimeError):
        interleaved({"a": lambda: 1.0}, CallClock(wall), Budget(3.0, wall), rounds=9, warm_up=1)


def test_times_are_medians_of_one_call() -> None:
    times = Times.of([8.0, 100.0, 4.0, 6.0, 10.0], calls=2)
    assert times.median_s == 4.0
    assert times.rounds == 5
    assert times.fastest_fifth_s == pytest.approx(2.8)  # a fifth of the way between the five, sorted
    assert times.slowest_fifth_s == pytest.approx(14.0)
    assert Times.of([3.0], calls=3) == Times(1.0, 1.0, 1.0, 1)


def test_one_by_one_makes_every_call() -> None:
    made: list[int] = []
    one_by_one([lambda: made.append(1), lambda: made.append(2)])()
    assert made == [1, 2]
