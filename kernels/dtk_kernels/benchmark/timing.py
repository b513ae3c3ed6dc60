"""Medians of interleaved timings: what is compared runs in turns, so that a busy moment hits all alike."""

import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["median_seconds"]

_Call = Callable[[], object]


def median_seconds(
    calls: Mapping[str, _Call], *, rounds: int = 7, least_sample_s: float = 2e-3
) -> dict[str, float]:
    """Time each call once a round and return each one's median time of a call.

    A sample is as many calls in a row as take `least_sample_s`, after one call that is not timed: data that
    fit in a cache are in it, as they are for all others of the comparison.

    Args:
        calls: What to time, by name.
        rounds: Samples of each.
        least_sample_s: Time of a sample, at least.

    Returns:
        Seconds a call, by name.
    """
    counts = {name: _calls_in(call, least_sample_s) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            samples[name].append(_seconds(call, counts[name]))
    return {name: statistics.median(values) for name, values in samples.items()}


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
