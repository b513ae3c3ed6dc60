"""Timing of several contenders in turn, so that whatever the machine does meanwhile happens to all."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Spread", "Timings", "interleave", "rotated"]

_MIN_ROUNDS = 3
_MAX_SHARE = 0.25  # of the time, that one slow contender may take


@dataclass(frozen=True)
class Spread:
    """Seconds of a contender's runs: median, 10th and 90th percentile, and their number."""

    median_s: float
    p10_s: float
    p90_s: float
    runs: int


@dataclass
class Timings:
    """What `interleave` measured.

    Attributes:
        samples: Seconds of each run, by contender, in order.
        interrupted: Whether Ctrl-C ended it early; what was measured until then is there.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    interrupted: bool = False

    def spread(self, name: str) -> Spread | None:
        """Return the spread of a contender's times, None if it never ran."""
        samples = sorted(self.samples.get(name, []))
        if not samples:
            return None
        return Spread(
            statistics.median(samples), _percentile(samples, 0.1), _percentile(samples, 0.9), len(samples)
        )


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    max_rounds: int,
    time_budget_s: float,
    before: Callable[[], object] = lambda: None,
    after_round: Callable[[int], object] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Run every contender once a round, in rotating order, until the rounds or the time are used up.

    At least three rounds are run. A contender that has used a quarter of the time sits out the rest.

    Args:
        contenders: What to time, by name.
        max_rounds: Rounds at most.
        time_budget_s: After this time no further round begins.
        before: Called before each run, not timed.
        after_round: Called with the number of rounds so far.
        clock: Seconds; another one in tests.
    """
    timings = Timings({name: [] for name in contenders})
    start = clock()
    try:
        for round_index in range(max_rounds):
            if round_index >= _MIN_ROUNDS and clock() - start >= time_budget_s:
                break
            for name in rotated(list(contenders), round_index):
                samples = timings.samples[name]
                if sum(samples) > _MAX_SHARE * time_budget_s:
                    continue
                before()
                begin = clock()
                contenders[name]()
                samples.append(clock() - begin)
            after_round(round_index + 1)
    except KeyboardInterrupt:
        timings.interrupted = True
    return timings


def rotated(names: Sequence[str], round_index: int) -> Iterator[str]:
    """Yield all names, beginning one further in each round."""
    return (names[(round_index + position) % len(names)] for position in range(len(names)))


def _percentile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
