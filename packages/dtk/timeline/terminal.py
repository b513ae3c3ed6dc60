"""A timeline in characters: a row a track, a column a stretch of time, a letter and a colour a category.

It leaves out names of spans, counters and flows.
"""

import math
import shutil
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from rich.text import Text

from dtk.timeline.axis import format_time, ticks
from dtk.timeline.columns import innermost_pieces, time_by_column
from dtk.timeline.labels import printable
from dtk.timeline.model import Timeline, Track
from dtk.timeline.palette import Look, looks

__all__ = ["IDLE", "MOSTLY_IDLE", "draw_terminal"]

IDLE = "."
MOSTLY_IDLE = ":"

_MIN_COLUMNS = 10
_COLUMNS_PER_TICK = 8


def draw_terminal(
    timeline: Timeline,
    *,
    width: int | None = None,
    threads: Collection[str] | None = None,
    max_rows: int = 200,
) -> Text:
    """Return the picture, each line at most `width` characters wide; `.plain` is the text without colour.

    A column shows what takes most of its time: a dot where nothing happens, a colon where little does.

    Args:
        timeline: What to draw.
        width: In characters; the terminal's, if not given.
        threads: Only tracks whose thread is one of these.
        max_rows: Further tracks are counted in the last line.
    """
    wanted = [track for track in timeline.tracks if threads is None or track.thread in threads]
    shown = wanted[:max_rows]
    lines = [Text(printable(f"{timeline.title} ({timeline.basis})"), style="bold")]
    if not shown or not timeline.end_ns:
        return Text("\n").join([*lines, Text("nothing to draw")])
    labels = [printable(label) for label in _labels(shown)]
    label_width = max(map(len, labels)) + 1
    num_columns = _num_columns(timeline, shown, (width or shutil.get_terminal_size().columns) - label_width)
    look = looks(timeline.categories)
    mixed = False
    for track, label in zip(shown, labels, strict=True):
        cells, row_mixed = _row(timeline, track, num_columns, look)
        mixed |= row_mixed
        lines.append(Text(label.ljust(label_width)) + cells)
    lines.append(Text(" " * label_width + _axis_line(timeline.end_ns, num_columns)))
    present = {span.category for track in shown for span in timeline.spans_of_track[track]}
    lines.append(_legend({name: one for name, one in look.items() if name in present}, mixed=mixed))
    rest = len(wanted) - len(shown)
    lines.append(Text(_note(timeline.end_ns, num_columns, mixed=mixed, rest=rest)))
    return Text("\n").join(lines)


def _axis_line(end_ns: int, num_columns: int) -> str:
    """Write the time axis: each label starts in the column of its time."""
    line = ""
    for tick in ticks(end_ns, max(1, num_columns // _COLUMNS_PER_TICK)):
        column = tick.time_ns * num_columns // end_ns
        if (not line or column > len(line)) and column + len(tick.label) <= num_columns:
            line = line.ljust(column) + tick.label
    return line


def _legend(look: Mapping[str, Look], *, mixed: bool) -> Text:
    """Say which letter and colour means what, in one line."""
    parts = []
    for name, one in look.items():
        words = "" if name == one.letter else f" {printable(name) or '(none)'}"
        parts.append(Text(one.letter, style=_style(one)) + Text(words))
    mostly = [Text(f"{MOSTLY_IDLE} mostly idle")] if mixed else []
    return Text("  ").join([*parts, Text(f"{IDLE} idle"), *mostly])


def _labels(tracks: Sequence[Track]) -> list[str]:
    """Name the process in its first row only."""
    process_width = max(len(track.process) for track in tracks)
    labels = []
    before = None
    for track in tracks:
        process = track.process if track.process != before else ""
        labels.append(f"{process.ljust(process_width)} {track.thread}")
        before = track.process
    return labels


def _num_columns(timeline: Timeline, tracks: Sequence[Track], available: int) -> int:
    """Return how many columns fit; if all times are multiples of a unit, a whole number of columns a unit."""
    available = max(available, _MIN_COLUMNS)
    unit = timeline.end_ns
    for track in tracks:
        for span in timeline.spans_of_track[track]:
            unit = math.gcd(unit, span.start_ns, span.end_ns)
            if timeline.end_ns // unit > available:
                return available
    num_units = timeline.end_ns // unit
    return available // num_units * num_units


def _row(timeline: Timeline, track: Track, num_columns: int, look: Mapping[str, Look]) -> tuple[Text, bool]:
    """Return a track's cells, and whether any of them stands for more than one thing."""
    order = {name: place for place, name in enumerate(timeline.categories)}
    pieces = innermost_pieces(timeline.spans_of_track[track])
    cells = Text()
    mixed = False
    for column in time_by_column(pieces, timeline.end_ns, num_columns):
        idle = timeline.end_ns - sum(column.values())
        mixed |= len(column) + (idle > 0) > 1
        best = max(column, key=lambda name: (column[name], -order[name]), default=None)
        if best is None or column[best] < idle:
            cells.append(IDLE if best is None else MOSTLY_IDLE, style="dim")
        else:
            cells.append(look[best].letter, style=_style(look[best]))
    return cells, mixed


def _style(look: Look) -> str:
    return f"{look.ink} on {look.colour}"


def _note(end_ns: int, num_columns: int, *, mixed: bool, rest: int) -> str:
    note = f"{format_time(end_ns)} in all, 1 column = {format_time(Fraction(end_ns, num_columns))}"
    if mixed:
        note += ", showing what takes most of it"
    return f"{note}; {rest} more tracks are not shown" if rest else note
