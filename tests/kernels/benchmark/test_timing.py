"""Interleaved medians, by a clock that only the timed calls move."""

import itertools
from collections.abc import Callable

import pytest

from dtk_kernels.benchmark import timing


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.turns: list[str] = []

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.turns.append("rest")
        self.now += seconds

    def call(self, name: str, durations: list[float]) -> Callable[[], None]:
        """A call that takes the given times, and the last of them from then on."""

        def run() -> None:
            self.turns.append(name)
            self.now += durations.pop(0) if len(durations) > 1 else durations[0]

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


def test_calls_run_in_turns_and_the_median_ignores_slow_samples(clock: Clock) -> None:
    calls = {"first": clock.call("first", [0.5] * 8 + [0.25]), "second": clock.call("second", [2.0])}
    timings = timing.interleaved(calls, rounds=9, least_sample_s=0.1)
    assert (timings.median_s("first"), timings.median_s("second")) == (0.25, 2.0)
    assert timings.median_ratio("second", "first") == 8.0
    assert timings.best_s("first") == 0.25
    switches = sum(before != after for before, after in itertools.pairwise(clock.turns))
    assert switches >= 2 * 9 - 1


def test_ratios_are_taken_within_a_round() -> None:
    timings = timing.Timings({"slow": [3.0, 30.0, 9.0], "fast": [1.0, 10.0, 9.0]})
    assert timings.median_ratio("slow", "fast") == 3.0  # the medians are both 9
    assert timings.median_ratio("fast", "slow") == pytest.approx(1 / 3)


def test_short_calls_are_repeated_until_a_sample_lasts(clock: Clock) -> None:
    timings = timing.interleaved({"short": clock.call("short", [2**-20])}, rounds=3, least_sample_s=2**-10)
    assert timings.median_s("short") == pytest.approx(2**-20)
    assert len(clock.turns) >= 3 * 2**10


def test_rests_come_before_each_sample_and_are_not_timed(clock: Clock) -> None:
    calls = {name: clock.call(name, [0.5]) for name in ("first", "second")}
    timings = timing.interleaved(calls, rounds=2, least_sample_s=0.1, rest_s=3.0)
    assert clock.turns[-6:] == ["rest", "first", "first", "rest", "second", "second"]
    assert (timings.median_s("first"), timings.median_s("second")) == (0.5, 0.5)
