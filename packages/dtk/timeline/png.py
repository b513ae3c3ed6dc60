"""A timeline as a PNG, drawn by matplotlib: for slides and reports that take no SVG.

It leaves out names inside spans, flows, and arguments of spans.
"""

import io
from typing import TYPE_CHECKING, Final

from dtk.timeline.axis import format_amount, ticks
from dtk.timeline.labels import printable
from dtk.timeline.model import Timeline
from dtk.timeline.picture import Panel, Picture, Row, lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_png"]

_DOTS_PER_INCH: Final = 100
_PLOT_WIDTH: Final = 1000
_MAX_EDGED: Final = 2000
_ROW_INCHES, _PANEL_INCHES, _REST_INCHES = 0.2, 0.6, 1.3
_INK, _LANE, _GRID = "#1f2328", "#f3f4f6", "#d1d9e0"


def draw_png(timeline: Timeline) -> tuple[bytes, tuple[str, ...]]:
    """Return a PNG file, and in plain words what it merges or does not show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = lay_out(timeline, _PLOT_WIDTH)
    heights = [max(len(picture.rows), 1) * _ROW_INCHES, *(_PANEL_INCHES for _ in picture.panels)]
    figure = Figure(figsize=(12, sum(heights) + _REST_INCHES), dpi=_DOTS_PER_INCH, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    _draw_rows(axes[0], picture)
    for below, panel in zip(axes[1:], picture.panels, strict=True):
        _draw_panel(below, panel, picture)
    if picture.panels:
        axes[1].legend(loc="upper right", fontsize=7, frameon=False, ncols=len(picture.panels[0].counters))
    places = ticks(picture.end_ns, 10)
    axes[-1].set_xticks([tick.time_ns for tick in places], [tick.label for tick in places])
    axes[-1].set_xlim(0, picture.end_ns)
    if picture.left_out:
        axes[-1].set_xlabel(_plain("; ".join(picture.left_out)), fontsize=8, color=_INK)
    buffer = io.BytesIO()
    canvas.print_png(buffer, metadata={"Software": None})
    return buffer.getvalue(), picture.left_out


def _draw_rows(axes: "Axes", picture: Picture) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    shapes: dict[str, list[list[tuple[float, float]]]] = {}
    for index, row in enumerate(picture.rows):
        for category, left, right, low, high in _rectangles(row):
            # Row 0 is at the top; a tenth of its height is left between it and the next.
            bottom, top = (index + 0.95 - 0.9 * part for part in (low, high))
            shape = [(left, bottom), (right, bottom), (right, top), (left, top)]
            shapes.setdefault(category, []).append(shape)
    # A fine line between neighbours, where there is room for it.
    edge = 0.5 if sum(map(len, shapes.values())) < _MAX_EDGED else 0.0
    for category, look in picture.looks.items():
        found = shapes.get(category, [])
        drawn = PolyCollection(found, facecolors=look.colour, edgecolors="white", linewidths=edge)
        axes.add_collection(drawn)
    count = len(picture.rows)
    axes.set_ylim(max(count, 1), 0)
    axes.set_yticks([index + 0.5 for index in range(count)], _row_labels(picture), fontsize=8)
    axes.tick_params(length=0, colors=_INK)
    axes.grid(visible=True, axis="x", color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(_plain(picture.title), loc="left", fontsize=11, color=_INK)
    if picture.looks:
        handles = [
            Patch(color=look.colour, label=_plain(name or "(none)")) for name, look in picture.looks.items()
        ]
        axes.figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(len(handles), 10),
            fontsize=8,
            frameon=False,
        )


def _rectangles(row: Row) -> list[tuple[str, float, float, float, float]]:
    spans = [(span.category, span.start_ns, span.end_ns, 0.0, 1.0) for span in row.spans]
    return [
        *spans,
        *((each.category, each.start_ns, each.end_ns, each.low, each.high) for each in row.shares),
    ]


def _row_labels(picture: Picture) -> list[str]:
    labels = []
    before = ("", "")
    for row in picture.rows:
        name = (row.process, row.thread)
        labels.append("" if name == before else _plain(" ".join(name)))
        before = name
    return labels


def _draw_panel(axes: "Axes", panel: Panel, picture: Picture) -> None:
    for counter in panel.counters:
        times = [0, *(time for time, _ in counter.points), picture.end_ns]
        values = [0, *(value for _, value in counter.points)]
        colour = picture.counter_looks[counter.name].colour
        label = _plain(counter.name)
        axes.step(times, [*values, values[-1]], where="post", color=colour, linewidth=1, label=label)
    marks = {0.0: "0", float(panel.highest): _plain(format_amount(panel.highest, panel.unit))}
    axes.set_ylim(0, float(panel.highest) * 1.05 or 1)
    axes.set_yticks(list(marks), list(marks.values()), fontsize=8)
    axes.set_ylabel(_plain(panel.process), rotation=0, ha="right", va="center", fontsize=8, color=_INK)
    axes.tick_params(length=0, colors=_INK)


def _plain(text: str) -> str:
    """Keep matplotlib from reading dollar signs as formulas and a leading underscore as `no legend`."""
    text = printable(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
