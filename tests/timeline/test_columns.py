"""Time by column, compared with counting every nanosecond."""

from hypothesis import given
from hypothesis import strategies as st

from dtk.timeline.columns import innermost_pieces, time_by_column
from dtk.timeline.model import Timeline
from tests.timeline.samples import timelines


@given(timelines(largest_ns=30), st.integers(1, 40))
def test_columns_hold_exactly_the_time_that_falls_into_them(timeline: Timeline, num_columns: int) -> None:
    end_ns = max(timeline.end_ns, 1)
    for spans in timeline.spans_of_track.values():
        pieces = list(innermost_pieces(spans))
        columns = time_by_column(pieces, end_ns, num_columns)
        # Cut each nanosecond into as many parts as there are columns: every border then falls between two.
        counted: list[dict[str, int]] = [{} for _ in range(num_columns)]
        for start, end, category in pieces:
            for part in range(start * num_columns, end * num_columns):
                column = counted[part // end_ns]
                column[category] = column.get(category, 0) + 1
        assert columns == counted
