"""Intervals that nest or are disjoint: how deep each lies, where two overlap, what is innermost when.

Intervals are [start, end): one that ends when the next starts does not overlap it. One without length lies
inside whatever covers its time.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

__all__ = ["Interval", "Overlap", "Piece", "depths", "find_overlap", "innermost"]


class Interval(Protocol):
    """What has a start and an end in integer nanoseconds."""

    @property
    def start_ns(self) -> int:
        """When it starts."""

    @property
    def end_ns(self) -> int:
        """When it ends; not before its start."""


IntervalT = TypeVar("IntervalT", bound=Interval)


class Overlap(NamedTuple):
    """Positions of two intervals that overlap in part, the earlier one first."""

    earlier: int
    later: int


class Piece(NamedTuple):
    """A stretch of time in which the interval at `place` is the innermost one."""

    start_ns: int
    end_ns: int
    place: int


def depths(intervals: Iterable[Interval]) -> list[int]:
    """Return for each interval how many others it lies in.

    Args:
        intervals: By start, and the longer one first where starts are equal; without partial overlap.
    """
    found: list[int] = []
    open_ends: list[int] = []
    for interval in intervals:
        while open_ends and open_ends[-1] <= interval.start_ns:
            open_ends.pop()
        found.append(len(open_ends))
        open_ends.append(interval.end_ns)
    return found


def find_overlap(intervals: Iterable[tuple[int, int]]) -> Overlap | None:
    """Return the first two intervals that overlap but do not nest, or None.

    Args:
        intervals: Starts and ends; by start, and the longer one first where starts are equal.
    """
    stack: list[tuple[int, int]] = []
    for index, (start, end) in enumerate(intervals):
        while stack and stack[-1][0] <= start:
            stack.pop()
        if stack and stack[-1][0] < end:
            return Overlap(stack[-1][1], index)
        stack.append((end, index))
    return None


def innermost(intervals: Sequence[Interval]) -> Iterator[Piece]:
    """Yield, in order of time, which interval is the innermost one; nothing for time outside all of them.

    Args:
        intervals: Sorted as `depths` wants them.
    """
    stack: list[int] = []
    now = 0
    for index, until in enumerate([*(interval.start_ns for interval in intervals), None]):
        while stack:
            end = intervals[stack[-1]].end_ns
            stop = end if until is None else min(end, until)
            if now < stop:
                yield Piece(now, stop, stack[-1])
                now = stop
            if until is not None and end > until:
                break
            stack.pop()
        if until is not None:
            now = until
            stack.append(index)
