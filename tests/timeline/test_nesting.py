"""Nesting, compared with looking at every nanosecond."""

from hypothesis import given

from dtk.timeline import Span, Timeline
from dtk.timeline.nesting import depths, innermost
from tests.timeline.samples import timelines


def covers(outer: Span, inner: Span) -> bool:
    return outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns


@given(timelines(largest_ns=40))
def test_the_innermost_span_is_the_shortest_that_covers_the_time(timeline: Timeline) -> None:
    for spans in timeline.spans_of_track.values():
        pieces = list(innermost(spans))
        found = {time: spans[piece.place] for piece in pieces for time in range(piece.start_ns, piece.end_ns)}
        assert sum(piece.end_ns - piece.start_ns for piece in pieces) == len(found)
        assert [piece.start_ns for piece in pieces] == sorted(piece.start_ns for piece in pieces)
        for time in range(41):
            there = [span for span in spans if span.start_ns <= time < span.end_ns]
            assert (time in found) == bool(there)
            if there:
                shortest = min(span.end_ns - span.start_ns for span in there)
                assert found[time] in there
                assert found[time].end_ns - found[time].start_ns == shortest


@given(timelines(largest_ns=40))
def test_a_span_is_as_deep_as_longer_spans_cover_it(timeline: Timeline) -> None:
    for spans in timeline.spans_of_track.values():
        lengths = [span.end_ns - span.start_ns for span in spans]
        for span, depth in zip(spans, depths(spans), strict=True):
            if lengths.count(span.end_ns - span.start_ns) == 1 and span.start_ns < span.end_ns:
                assert depth == sum(covers(other, span) for other in spans) - 1
