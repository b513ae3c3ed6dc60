"""Interleaved rounds on a clock of the test's own."""

import pytest

from dtk.scout.bench.timing import Spread, Timings, interleave, shuffled


class FakeClock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, seconds: float) -> None:
        self.log.append(name)
        self.now += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_every_round_has_an_order_of_its_own() -> None:
    orders = [shuffled("abcdefgh", index) for index in range(20)]
    assert all(sorted(order) == list("abcdefgh") for order in orders)
    assert len({tuple(order) for order in orders}) == 20
    assert len({order[order.index("a") - 1] for order in orders if order[0] != "a"}) > 3
    assert orders[3] == shuffled("abcdefgh", 3)


def test_every_round_runs_every_contender_once_after_settling(clock: FakeClock) -> None:
    rounds: list[int] = []
    timings = interleave(
        {"a": lambda: clock.work("a", 1.0), "b": lambda: clock.work("b", 2.0)},
        max_rounds=3,
        time_budget_s=1000.0,
        before=lambda _: clock.work(".", 10.0),
        after_round=rounds.append,
        clock=clock,
    )
    turns = "".join(clock.log)
    assert [sorted(turns[start : start + 4]) for start in (0, 4, 8)] == [list("..ab")] * 3
    assert set(turns[::2]) == {"."}
    assert rounds == [1, 2, 3]
    # What comes before a run is not in its time.
    assert timings == Timings([{"a": 1.0, "b": 2.0}] * 3)
    assert timings.samples("b") == [2.0, 2.0, 2.0]


def test_the_time_budget_ends_the_rounds(clock: FakeClock) -> None:
    timings = interleave(
        {name: lambda: clock.work("", 1.0) for name in "abcdefgh"},
        max_rounds=100,
        time_budget_s=40.0,
        clock=clock,
    )
    assert len(timings.rounds) == 5
    assert clock.now == 40.0


def test_three_rounds_are_run_whatever_they_take(clock: FakeClock) -> None:
    timings = interleave(
        {"a": lambda: clock.work("", 1.0)},
        max_rounds=9,
        time_budget_s=20.0,
        before=lambda _: clock.work("", 100.0),
        clock=clock,
    )
    assert timings.samples("a") == [1.0] * 3


def test_nothing_goes_on_once_all_sit_out(clock: FakeClock) -> None:
    timings = interleave({"a": lambda: clock.work("", 1.0)}, max_rounds=9, time_budget_s=4.0, clock=clock)
    assert timings.rounds == [{"a": 1.0}] * 2


def test_a_slow_contender_sits_out(clock: FakeClock) -> None:
    timings = interleave(
        {"slow": lambda: clock.work("slow", 30.0), "quick": lambda: clock.work("quick", 1.0)},
        max_rounds=8,
        time_budget_s=100.0,
        clock=clock,
    )
    assert len(timings.samples("slow")) == 1
    assert len(timings.samples("quick")) == 8


def test_ctrl_c_keeps_what_was_measured(clock: FakeClock) -> None:
    def interrupted() -> None:
        clock.work("b", 1.0)
        if len(clock.log) > 3:
            raise KeyboardInterrupt

    timings = interleave(
        {"a": lambda: clock.work("a", 1.0), "b": interrupted}, max_rounds=9, time_budget_s=99.0, clock=clock
    )
    assert timings.interrupted
    assert timings.rounds[0] == {"a": 1.0, "b": 1.0}
    assert sum(len(seconds) for seconds in timings.rounds) == len(clock.log) - 1
    assert timings.rounds[-1] != {"a": 1.0, "b": 1.0}


def test_spread_of_known_figures() -> None:
    spread = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert spread is not None
    assert (spread.median, spread.count) == (3.0, 5)
    assert (spread.p10, spread.p90) == pytest.approx((1.4, 4.6))
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0, 1)
    assert Spread.of([]) is None
