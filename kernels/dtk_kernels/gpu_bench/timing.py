"""How calls are timed: in turns, by the GPU's own clock, within a budget of wall time.

A contender is a list of calls that do the same on different data. Captured in a CUDA graph they run back to
back, without the host in between, as they would in a decode step.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Protocol

import torch

__all__ = ["Budget", "Clock", "GpuClock", "OutOfTimeError", "Times", "captured", "interleaved", "one_by_one"]

Call = Callable[[], object]


class OutOfTimeError(Exception):
    """The budget of wall time is spent."""


class Budget:
    """A budget of wall time, in seconds, that starts now.

    Args:
        seconds: how long everything may take.
        now: clock in seconds, monotonic.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._start = now()
        self._seconds = seconds

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return self._now() - self._start

    def allows(self, seconds: float = 0.0) -> bool:
        """Return whether something that takes so many seconds would still end in time."""
        return self.spent_s + seconds < self._seconds


class Clock(Protocol):
    """Measures one run of a call."""

    def time(self, call: Call) -> float:
        """Return the seconds that the call takes."""


class GpuClock:
    """Measures by CUDA events, so that the time on the way to the GPU does not count."""

    def __init__(self) -> None:
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def time(self, call: Call) -> float:
        """Return the seconds between the GPU's start and end of the call."""
        self._start.record()
        call()
        self._end.record()
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) / 1e3


@dataclass(frozen=True)
class Times:
    """Times of one contender.

    Attributes:
        median_s: median over the rounds, seconds a call.
        fastest_fifth_s: a fifth of the rounds was at least as fast.
        slowest_fifth_s: a fifth of the rounds was at least as slow.
        rounds: how many rounds there were.
    """

    median_s: float
    fastest_fifth_s: float
    slowest_fifth_s: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float], calls: int) -> "Times":
        """Sum up rounds that made so many calls each."""
        each = [value / calls for value in seconds]
        tenths = quantiles(each, n=10, method="inclusive") if len(each) > 1 else [each[0]] * 9
        return cls(tenths[4], tenths[1], tenths[7], len(each))


def captured(calls: Sequence[Call]) -> Call:
    """Return a call that replays all calls from one CUDA graph.

    Raises:
        RuntimeError: a call cannot be captured, because it waits for the GPU, for example.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # compiles and allocates, which a capture must not
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    replay: Call = graph.replay
    return replay


def one_by_one(calls: Sequence[Call]) -> Call:
    """Return a call that makes all calls from the host."""

    def run() -> None:
        for call in calls:
            call()

    return run


def interleaved(
    contenders: Mapping[str, Call], clock: Clock, budget: Budget, *, rounds: int, warm_up: int = 3
) -> dict[str, list[float]]:
    """Time contenders in turns, each round beginning with another one; return the seconds of every round.

    Rounds that the budget does not allow are left out.

    Raises:
        OutOfTimeError: not even three rounds are possible.
    """
    for _ in range(warm_up):
        for call in contenders.values():
            clock.time(call)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for done in range(rounds):
        if not budget.allows():
            if done < 3:
                raise OutOfTimeError
            break
        for name in order:
            seconds[name].append(clock.time(contenders[name]))
        order = [*order[1:], order[0]]
    return seconds
