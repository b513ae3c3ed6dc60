"""How our kernel's time grows with the selected tokens, and hardly with the context: the figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Point", "Scaling", "log_log_slope", "token_counts"]


@dataclass(frozen=True)
class Point:
    """Our kernel at one size.

    Attributes:
        selected_tokens: Tokens attended to, of each sequence.
        context_tokens: Tokens they were selected from.
        median_s: Median of the seconds of a call; `p10_s` and `p90_s` are percentiles, `runs` their number.
        kv_bandwidth_bytes_per_s: Bytes of the selected K/V over the median.
    """

    selected_tokens: int
    context_tokens: int
    median_s: float
    p10_s: float
    p90_s: float
    runs: int
    kv_bandwidth_bytes_per_s: float


@dataclass(frozen=True)
class Scaling:
    """The growth of our kernel's time.

    Attributes:
        dtype: Number format of K/V and query.
        group_size: Query heads for each KV head.
        threads: Threads that worked.
        by_selected_tokens: At the whole context, for more and more selected tokens.
        log_log_slope: Slope of log time over log tokens there: 1 is linear, below 1 a fixed cost shows.
        by_context_tokens: At the same selected tokens, out of larger and larger contexts.
        context_ratio: The largest time there over the smallest.
        wrong: What was wrong with an answer; then nothing was timed.
        interrupted: Whether Ctrl-C ended it early.
        basis: Always measured.
    """

    dtype: str
    group_size: int
    threads: int
    by_selected_tokens: list[Point]
    log_log_slope: float | None
    by_context_tokens: list[Point]
    context_ratio: float | None
    wrong: list[str]
    interrupted: bool
    basis: Literal["measured"] = "measured"


def token_counts(smallest: int, largest: int) -> list[int]:
    """Return smallest, twice it and so on, and the largest."""
    counts = []
    while smallest < largest:
        counts.append(smallest)
        smallest *= 2
    return [*counts, largest]


def log_log_slope(points: Sequence[Point]) -> float | None:
    """Return the least-squares slope of log time over log selected tokens, None for less than two points."""
    if len(points) < 2:
        return None
    x = [math.log(point.selected_tokens) for point in points]
    y = [math.log(point.median_s) for point in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((one - mean_x) * (other - mean_y) for one, other in zip(x, y, strict=True))
    return covariance / sum((one - mean_x) ** 2 for one in x)
