"""What a picture of a timeline holds, before it is SVG or PNG: rows, shares of time, panels of counters.

A row whose spans are too many to be seen one by one shows how time divides among the categories, in columns.
So the size of a picture is bounded, whatever the timeline holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Final, NamedTuple

from dtk.timeline.axis import format_time
from dtk.timeline.columns import time_by_column
from dtk.timeline.model import Counter, Span, Timeline, Track
from dtk.timeline.nesting import depths
from dtk.timeline.palette import Look, looks
from dtk.timeline.thinning import merge_close_points

__all__ = ["Panel", "Picture", "Row", "Share", "lay_out"]

_MAX_ROWS: Final = 512
_MAX_PANELS: Final = 16
_MAX_PIECES: Final = 100_000  # rectangles of all rows together
_WIDTH_PER_SPAN: Final = 3  # pixels; where a row's spans have less on average, they are not drawn one by one
_WIDTH_PER_COLUMN: Final = 4
_POINTS_ACROSS: Final = 600


class Share(NamedTuple):
    """A category's part of a column: from `low` to `high` of the row's height, 0 being its lower edge."""

    start_ns: float
    end_ns: float
    low: float
    high: float
    category: str


class Row(NamedTuple):
    """A track, or one level of a track whose spans nest: either disjoint `spans` by time, or `shares`."""

    process: str
    thread: str
    spans: Sequence[Span]
    shares: Sequence[Share]


class Panel(NamedTuple):
    """The counters of a process that have one unit."""

    process: str
    unit: str
    counters: Sequence[Counter]
    highest: float


@dataclass(frozen=True)
class Picture:
    """What is to be drawn.

    Attributes:
        title: With the basis.
        end_ns: The right edge; at least 1.
        rows: From the top down.
        panels: Below the rows.
        looks: Of the categories that occur.
        counter_looks: Of the counters' names.
        left_out: In plain words what is merged or not shown.
    """

    title: str
    end_ns: int
    rows: Sequence[Row]
    panels: Sequence[Panel]
    looks: Mapping[str, Look]
    counter_looks: Mapping[str, Look]
    left_out: tuple[str, ...]


def lay_out(timeline: Timeline, plot_width: int) -> Picture:
    """Return the picture of a timeline for a plot of that many pixels."""
    end_ns = max(timeline.end_ns, 1)
    levels = [level for track in timeline.tracks for level in _levels(timeline, track)]
    shown = levels[:_MAX_ROWS]
    occurring = {span.category for row in shown for span in row.spans}
    most_spans = min(plot_width // _WIDTH_PER_SPAN, _MAX_PIECES // max(len(shown), 1))
    most_columns = _MAX_PIECES // max(len(shown) * len(occurring), 1)
    num_columns = max(1, min(plot_width // _WIDTH_PER_COLUMN, most_columns))
    crowded = [len(row.spans) > most_spans for row in shown]
    pairs = zip(shown, crowded, strict=True)
    order = {category: place for place, category in enumerate(timeline.categories)}
    rows = [_as_shares(row, end_ns, num_columns, order) if many else row for row, many in pairs]
    panels = [_thin(panel, max(1, end_ns // _POINTS_ACROSS)) for panel in _panels(timeline)]
    notes = []
    if any(crowded):
        which = "all rows show" if all(crowded) else f"{sum(crowded)} of {len(shown)} rows show"
        notes.append(f"{which} shares of time, in columns of {format_time(Fraction(end_ns, num_columns))}")
    if len(levels) > len(shown):
        notes.append(f"{len(levels) - len(shown)} more rows are not shown")
    if len(panels) > _MAX_PANELS:
        notes.append(f"{len(panels) - _MAX_PANELS} more panels of counters are not shown")
    known = looks(timeline.categories)
    return Picture(
        title=f"{timeline.title} ({timeline.basis})",
        end_ns=end_ns,
        rows=rows,
        panels=panels[:_MAX_PANELS],
        looks={name: look for name, look in known.items() if name in occurring},
        counter_looks=looks(dict.fromkeys(counter.name for panel in panels for counter in panel.counters)),
        left_out=tuple(notes),
    )


def _levels(timeline: Timeline, track: Track) -> Iterator[Row]:
    """Yield a row for each level of nesting on a track, and one for a track without spans."""
    spans = timeline.spans_of_track[track]
    levels: list[list[Span]] = [[]]
    for span, depth in zip(spans, depths(spans), strict=True):
        if depth == len(levels):
            levels.append([])
        levels[depth].append(span)
    yield from (Row(track.process, track.thread, level, ()) for level in levels)


def _as_shares(row: Row, end_ns: int, num_columns: int, order: Mapping[str, int]) -> Row:
    """Return a row with shares in place of spans; neighbouring columns that are alike are one.

    Args:
        row: Of spans.
        end_ns: The time of all columns.
        num_columns: How many.
        order: Of the categories, from the bottom of a column up.
    """
    pieces = ((span.start_ns, span.end_ns, span.category) for span in row.spans)
    columns = time_by_column(pieces, end_ns, num_columns)
    shares: list[Share] = []
    start = 0
    stacked = (tuple(sorted(column.items(), key=lambda item: order[item[0]])) for column in columns)
    for key, alike in groupby(stacked):
        stop = start + sum(1 for _ in alike)
        low = 0
        for category, time in key:
            left, right = (end_ns * edge / num_columns for edge in (start, stop))
            shares.append(Share(left, right, low / end_ns, (low + time) / end_ns, category))
            low += time
        start = stop
    return Row(row.process, row.thread, (), shares)


def _panels(timeline: Timeline) -> list[Panel]:
    found: dict[tuple[str, str], list[Counter]] = {}
    place = {process: index for index, process in enumerate(timeline.processes)}
    for counter in sorted(timeline.counters, key=lambda one: (place[one.process], one.unit, one.name)):
        found.setdefault((counter.process, counter.unit), []).append(counter)
    return [
        Panel(process, unit, counters, max((value for one in counters for _, value in one.points), default=0))
        for (process, unit), counters in found.items()
    ]


def _thin(panel: Panel, bin_ns: int) -> Panel:
    return panel._replace(counters=[merge_close_points(counter, bin_ns) for counter in panel.counters])
