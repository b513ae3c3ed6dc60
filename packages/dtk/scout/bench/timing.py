"""Timing of several contenders in turn, so that whatever the machine does meanwhile happens to all."""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Spread", "Timings", "interleave", "shuffled"]

_MIN_ROUNDS = 3
_MAX_SHARE = 0.25  # of the time, that one slow contender may take


@dataclass(frozen=True)
class Spread:
    """The median of some figures, their 10th and 90th percentile, and how many they are."""

    median: float
    p10: float
    p90: float
    count: int

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread | None":
        """Return the spread of the figures, None if there are none."""
        if not figures:
            return None
        ordered = sorted(figures)
        return cls(
            statistics.median(ordered), _percentile(ordered, 0.1), _percentile(ordered, 0.9), len(ordered)
        )


@dataclass
class Timings:
    """What `interleave` measured.

    Attributes:
        rounds: For each round the seconds of every contender that ran in it.
        interrupted: Whether Ctrl-C ended it early; what was measured until then is there.
    """

    rounds: list[dict[str, float]] = field(default_factory=list)
    interrupted: bool = False

    def samples(self, name: str) -> list[float]:
        """Return the seconds of all runs of one contender, in order."""
        return [seconds[name] for seconds in self.rounds if name in seconds]

    def spread(self, name: str) -> Spread | None:
        """Return the spread of a contender's seconds, None if it never ran."""
        return Spread.of(self.samples(name))


def interleave(
    contenders: Mapping[str, Callable[[], object]],
    *,
    max_rounds: int,
    time_budget_s: float,
    before: Callable[[str], object] = lambda _: None,
    after_round: Callable[[int], object] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Run every contender once a round, in random order, until the rounds or the time are used up.

    At least three rounds are run. A contender that has used a quarter of the time sits out the rest. Ctrl-C
    ends the rounds; what was measured is returned.

    Args:
        contenders: What to time, by name.
        max_rounds: Rounds at most.
        time_budget_s: After this time no further round begins, the first three excepted.
        before: Called with the name of a contender before it runs, not timed.
        after_round: Called with the number of rounds so far.
        clock: Seconds; another one in tests.
    """
    timings = Timings()
    used_s = dict.fromkeys(contenders, 0.0)
    start = clock()
    try:
        for round_index in range(max_rounds):
            if round_index >= _MIN_ROUNDS and clock() - start >= time_budget_s:
                break
            seconds: dict[str, float] = {}
            timings.rounds.append(seconds)
            for name in shuffled(contenders, round_index):
                if used_s[name] > _MAX_SHARE * time_budget_s:
                    continue
                before(name)
                begin = clock()
                contenders[name]()
                seconds[name] = clock() - begin
                used_s[name] += seconds[name]
            if not seconds:
                timings.rounds.pop()
                break
            after_round(round_index + 1)
    except KeyboardInterrupt:
        timings.interrupted = True
    return timings


def shuffled(names: Iterable[str], round_index: int) -> list[str]:
    """Return all names in an order of the round's own, so that nobody always runs after the same one."""
    order = list(names)
    random.Random(round_index).shuffle(order)
    return order


def _percentile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
