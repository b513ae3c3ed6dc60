"""Fewer spans and points for files that would be too large; busy time and peaks are kept."""

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from itertools import groupby

from dtk.timeline.model import Counter, Span, Timeline
from dtk.timeline.nesting import depths

__all__ = ["merge_close_points", "merge_short_spans", "merge_spans_of"]


def merge_spans_of(timeline: Timeline, bin_ns: int) -> list[Span]:
    """Return the spans of all tracks as `merge_short_spans` leaves them."""
    return [span for spans in timeline.spans_of_track.values() for span in merge_short_spans(spans, bin_ns)]


def merge_short_spans(spans: Sequence[Span], bin_ns: int) -> Iterator[Span]:
    """Yield a track's spans with neighbours shorter than `bin_ns` merged; inner ones are left out.

    Short spans that start in the same multiple of `bin_ns` become one, from the first one's start to the last
    one's end. Its name says how many they were, its category is the one that takes most of the time, and its
    arguments tell the busy time.

    Args:
        spans: Of one track, sorted as `Timeline.spans_of_track` has them.
        bin_ns: At least 1.
    """
    outer = [span for span, depth in zip(spans, depths(spans), strict=True) if depth == 0]

    def bin_of(span: Span) -> tuple[bool, int]:
        short = span.end_ns - span.start_ns < bin_ns
        return short, span.start_ns // bin_ns if short else span.start_ns

    for (short, _), group in groupby(outer, key=bin_of):
        members = list(group)
        if short and len(members) > 1:
            yield _merged(members)
        else:
            yield from members


def merge_close_points(counter: Counter, bin_ns: int) -> Counter:
    """Return the counter with two points at most for each multiple of `bin_ns`: its largest and its last."""
    kept: list[tuple[int, int | float]] = []
    for _, group in groupby(counter.points, key=lambda point: point[0] // bin_ns):
        points = list(group)
        largest = max(points, key=lambda point: point[1])
        kept += [largest, points[-1]] if largest is not points[-1] else [largest]
    return Counter(counter.process, counter.name, tuple(kept), counter.unit)


def _merged(members: Sequence[Span]) -> Span:
    busy: Tally[str] = Tally()
    for span in members:
        busy[span.category] += span.end_ns - span.start_ns
    first, last = members[0], members[-1]
    category = min(busy, key=lambda name: (-busy[name], name))
    args = {"spans": len(members), "busy_ns": busy.total()}
    return Span(first.track, f"{len(members)} spans", first.start_ns, last.end_ns, category, args)
