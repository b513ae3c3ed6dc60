"""Merging keeps busy time, order and peaks."""

from hypothesis import given
from hypothesis import strategies as st

from dtk.timeline import Counter, Timeline
from dtk.timeline.nesting import innermost
from dtk.timeline.thinning import merge_close_points, merge_short_spans
from tests.timeline.samples import timelines

BIN_NS = st.integers(1, 2000)


@given(timelines(), BIN_NS)
def test_merged_spans_are_disjoint_and_as_busy_and_few(timeline: Timeline, bin_ns: int) -> None:
    for spans in timeline.spans_of_track.values():
        merged = list(merge_short_spans(spans, bin_ns))
        edges = [edge for span in merged for edge in (span.start_ns, span.end_ns)]
        assert edges == sorted(edges)
        busy = sum(piece.end_ns - piece.start_ns for piece in innermost(spans))
        assert sum(int(span.args.get("busy_ns", span.end_ns - span.start_ns)) for span in merged) == busy
        # No more than a short one and a long one begin in a bin.
        assert len(merged) <= 2 * (3000 // bin_ns + 1)
        assert [span for span in spans if span in merged] == [
            span for span in merged if "spans" not in span.args
        ]


@given(st.dictionaries(st.integers(0, 3000), st.integers(-5, 5)), BIN_NS)
def test_merged_points_keep_the_peak_and_the_last_value_of_each_bin(
    values: dict[int, int], bin_ns: int
) -> None:
    points = tuple(sorted(values.items()))
    merged = merge_close_points(Counter("rank 0", "held", points), bin_ns).points
    assert set(merged) <= set(points)
    assert list(merged) == sorted(merged)
    for place in {time // bin_ns for time in values}:
        before = [point for point in points if point[0] // bin_ns == place]
        after = [point for point in merged if point[0] // bin_ns == place]
        assert max(value for _, value in after) == max(value for _, value in before)
        assert after[-1] == before[-1]
        assert len(after) <= 2
