"""Interleaved timings: what is compared runs in turns, so that a busy moment hits all alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Timings", "interleaved"]

_Call = Callable[[], object]


@dataclass(frozen=True)
class Timings:
    """Seconds a call, by name and round."""

    samples: Mapping[str, list[float]]

    def median_s(self, name: str) -> float:
        """Return the median over the rounds."""
        return statistics.median(self.samples[name])

    def best_s(self, name: str) -> float:
        """Return the shortest of the rounds: on a busy machine, the one that had it to itself."""
        return min(self.samples[name])

    def median_ratio(self, name: str, other: str) -> float:
        """Return the median of the rounds' ratios, for a round's calls met about the same machine."""
        pairs = zip(self.samples[name], self.samples[other], strict=True)
        return statistics.median(first / second for first, second in pairs)


def interleaved(
    calls: Mapping[str, _Call], *, rounds: int = 7, least_sample_s: float = 2e-3, rest_s: float = 0.0
) -> Timings:
    """Time each call once a round.

    A sample is as many calls in a row as take `least_sample_s`, after one call that is not timed: data that
    fit in a cache are in it, as they are for all others of the comparison.

    Args:
        calls: What to time, by name.
        rounds: Samples of each.
        least_sample_s: Time of a sample, at least.
        rest_s: Pause before each sample. OpenMP's threads go on spinning for milliseconds after they were
            used, on the cores of whoever comes next.
    """
    counts = {name: _calls_in(call, least_sample_s) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if rest_s > 0:
                time.sleep(rest_s)
            call()
            samples[name].append(_seconds(call, counts[name]))
    return Timings(samples)


def _calls_in(call: _Call, least_s: float) -> int:
    call()
    count = 1
    while (seconds := _seconds(call, count) * count) < least_s:
        count = max(2 * count, int(count * least_s / max(seconds, 1e-9)))
    return count


def _seconds(call: _Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
