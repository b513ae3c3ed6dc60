"""Draw a plot's data as SVG to stand inside a page: no script, no font file, no link to anything outside."""

import io
import re
from typing import TYPE_CHECKING

from dtk.repro.observed import Plot, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_svg"]

_COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#4b5563")
_INK, _GRID = "#374151", "#e5e7eb"


def draw_svg(plot: Plot, *, prefix: str = "plot") -> str:
    """Return the `<svg>` element of a plot; the same data gives the same bytes.

    Args:
        plot: What to draw.
        prefix: Put before every id, so that several plots can stand in one page.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings = {"svg.hashsalt": "dtk", "svg.fonttype": "none", "font.size": 10, "font.family": ["sans-serif"]}
    with rc_context(settings):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, plot)
        buffer = io.StringIO()
        # Nothing that changes from day to day or points elsewhere.
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", backend="svg", transparent=True, metadata=metadata)
    return _embeddable(buffer.getvalue(), plot, prefix)


def _draw(axes: "Axes", plot: Plot) -> None:
    groups = [series for series in plot.series if series.style == "bars"]
    for index, series in enumerate(plot.series):
        colour = _COLOURS[index % len(_COLOURS)]
        label = _text(f"{series.name} ({series.basis})")
        heights = [float("nan") if height is None else height for height in series.y]
        if series.style == "bars":
            positions = _bar_positions(series, groups)
            axes.bar(positions, heights, width=0.8 / len(groups), color=colour, label=label)
            axes.set_xticks(range(len(series.x)), [_text(str(x)) for x in series.x])
        else:
            style = "-" if series.style == "line" else "none"
            xs = [_text(x) if isinstance(x, str) else x for x in series.x]
            marker = "o" if series.style == "points" or len(xs) < 3 else None
            axes.plot(xs, heights, linestyle=style, marker=marker, markersize=4, color=colour, label=label)
    for name, height in plot.lines.items():
        axes.axhline(height, color=_INK, linestyle="--", linewidth=1, label=_text(name))
    if not any(isinstance(x, str) for series in plot.series for x in series.x):
        axes.set_xscale(plot.x_scale)
    axes.set_yscale(plot.y_scale)
    axes.set_xlabel(_text(plot.x_label), color=_INK)
    axes.set_ylabel(_text(plot.y_label), color=_INK)
    axes.grid(visible=True, axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#9ca3af")
    axes.tick_params(colors=_INK, length=3)
    if plot.series or plot.lines:
        axes.legend(frameon=False, fontsize=9, labelcolor=_INK)


def _bar_positions(series: Series, groups: list[Series]) -> list[float]:
    width = 0.8 / len(groups)
    shift = (groups.index(series) - (len(groups) - 1) / 2) * width
    return [position + shift for position in range(len(series.x))]


def _text(text: str) -> str:
    """Keep matplotlib from reading dollar signs as formulas and a leading underscore as `no legend`."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _embeddable(document: str, plot: Plot, prefix: str) -> str:
    """Cut the XML head, make ids unique in the page, and tell screen readers what it is."""
    from markupsafe import escape

    def adapt(tag: re.Match[str]) -> str:
        text = re.sub(r' id="', f' id="{prefix}-', tag[0])
        text = re.sub(r'href="#', f'href="#{prefix}-', text)
        text = re.sub(r"url\(#", f"url(#{prefix}-", text)
        return re.sub(r"font-family: [^;]*; ?", "", text)

    svg = document[document.index("<svg") :].strip()
    svg = re.sub(r"<[^>]*>", adapt, svg)
    label = f'role="img" aria-label="{escape(plot.title)}"'
    return svg.replace("<svg ", f"<svg {label} ", 1)
