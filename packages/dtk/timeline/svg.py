"""A timeline as one SVG file: rows of spans, their names where they fit, a time axis, counters below.

No script and no font, nothing outside the file; it follows the reader's light or dark scheme. The same
timeline gives the same bytes. It leaves out flows.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from dtk.timeline.axis import format_amount, format_time, ticks
from dtk.timeline.model import Span, Timeline
from dtk.timeline.palette import Look
from dtk.timeline.picture import Panel, Picture, Row, lay_out

__all__ = ["SvgFile", "draw_svg"]

_MAX_TOOLTIPS: Final = 5000
_CHARACTER: Final = 6.6  # pixels, at 11 px
_MARGIN: Final = 12
_RIGHT_MARGIN: Final = 30  # half of the last label of the axis
_MAX_LABEL: Final = 24
_ROW, _CROWDED_ROW, _GAP = 18, 9, 2
_PANEL: Final = 48
_HEAD: Final = 64
_NOT_XML: Final = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE: Final = """
.paper{fill:#ffffff}.ink{fill:#1f2328}.dim{fill:#59636e}.lane{fill:#f3f4f6}.grid{stroke:#d1d9e0}
text{font:11px system-ui,sans-serif}.head{font-size:14px;font-weight:600}
.mid{text-anchor:middle}.end{text-anchor:end}
.line{fill:none;stroke-width:1.5}
@media (prefers-color-scheme:dark){
.paper{fill:#16181d}.ink{fill:#e6e8eb}.dim{fill:#9ba3ad}.lane{fill:#22262d}.grid{stroke:#3a4049}}
"""


@dataclass(frozen=True)
class SvgFile:
    """An SVG document, and in plain words what it merges or does not show."""

    text: str
    left_out: tuple[str, ...]


def draw_svg(timeline: Timeline, *, width: int = 1200) -> SvgFile:
    """Return the picture, `width` pixels wide; its size is bounded, whatever the timeline holds."""
    label_width = _label_width(timeline)
    picture = lay_out(timeline, _plot_width(width, label_width))
    return _Drawing(picture, width, label_width).file()


def _label_width(timeline: Timeline) -> int:
    threads = (track.thread for track in timeline.tracks)
    widest = [max(map(len, names), default=0) for names in (timeline.processes, threads)]
    return int(sum(min(width, _MAX_LABEL) + 2 for width in widest) * _CHARACTER)


def _plot_width(width: int, label_width: int) -> int:
    return max(width - label_width - _MARGIN - _RIGHT_MARGIN, 100)


class _Drawing:
    """Where everything of one picture goes."""

    def __init__(self, picture: Picture, width: int, label_width: int) -> None:
        self.picture = picture
        self.left = _MARGIN + label_width
        self.plot_width = _plot_width(width, label_width)
        self.width = self.left + self.plot_width + _RIGHT_MARGIN
        self.row_height = _ROW if len(picture.rows) <= 128 else _CROWDED_ROW
        self.rows_end = _HEAD + len(picture.rows) * (self.row_height + _GAP)
        self.classes = {category: f"c{index}" for index, category in enumerate(picture.looks)}
        self.tooltips = sum(len(row.spans) for row in picture.rows) <= _MAX_TOOLTIPS

    def file(self) -> SvgFile:
        """Return the whole document."""
        picture = self.picture
        panels_end = self.rows_end + 22 + len(picture.panels) * (_PANEL + 18)
        height = panels_end + 20 * len(picture.left_out) + _MARGIN
        title, label = _text(picture.title), quoteattr(_clean(picture.title))
        size = f'width="{self.width}" height="{height}" viewBox="0 0 {self.width} {height}"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={label}>',
            f"<title>{title}</title>",
            f"<style>{_STYLE}{''.join(self._class_rules())}</style>",
            f'<rect class="paper" width="{self.width}" height="{height}"/>',
            f'<text class="ink head" x="{_MARGIN}" y="22">{title}</text>',
            *self._legend(picture.looks, _MARGIN, 44),
            *self._axis(),
            *(part for index, row in enumerate(picture.rows) for part in self._row(index, row)),
            *self._panels(),
        ]
        for index, note in enumerate(picture.left_out):
            parts.append(
                f'<text class="dim" x="{_MARGIN}" y="{panels_end + 20 * index + 14}">{_text(note)}</text>'
            )
        return SvgFile("\n".join([*parts, "</svg>\n"]), picture.left_out)

    def _class_rules(self) -> Iterator[str]:
        for category, look in self.picture.looks.items():
            name = self.classes[category]
            yield f".{name}{{fill:{look.colour}}}.i{name}{{fill:{look.ink}}}"

    def _legend(self, looks: Mapping[str, Look], x: float, y: float) -> Iterator[str]:
        for name, look in looks.items():
            label = name or "(none)"
            yield f'<rect x="{_number(x)}" y="{y - 9}" width="10" height="10" fill="{look.colour}"/>'
            yield f'<text class="ink" x="{_number(x + 14)}" y="{y}">{_text(label)}</text>'
            x += 14 + (len(label) + 2) * _CHARACTER

    def _axis(self) -> Iterator[str]:
        bottom = self.rows_end
        for tick in ticks(self.picture.end_ns, self.plot_width // 90):
            x = self._x(tick.time_ns)
            yield f'<path class="grid" d="M{x} {_HEAD}V{bottom}"/>'
            yield f'<text class="dim mid" x="{x}" y="{bottom + 14}">{_text(tick.label)}</text>'

    def _row(self, index: int, row: Row) -> Iterator[str]:
        y = _HEAD + index * (self.row_height + _GAP)
        rows = self.picture.rows
        new_process = index == 0 or rows[index - 1].process != row.process
        new_track = new_process or rows[index - 1].thread != row.thread
        base = y + self.row_height - (5 if self.row_height == _ROW else 1)
        if new_process:
            yield f'<text class="ink" x="{_MARGIN}" y="{base}">{_label_text(row.process)}</text>'
        if new_track:
            yield f'<text class="dim end" x="{self.left - 8}" y="{base}">{_label_text(row.thread)}</text>'
        yield self._lane(y, self.row_height)
        yield from self._shares(row, y) if row.shares else self._spans(row, y)

    def _shares(self, row: Row, y: int) -> Iterator[str]:
        paths: dict[str, list[str]] = {}
        for share in row.shares:
            left, right = (self._place(time) for time in (share.start_ns, share.end_ns))
            top, bottom = (y + self.row_height * (1 - part) for part in (share.high, share.low))
            paths.setdefault(share.category, []).append(_rectangle(left, top, right, bottom))
        yield from self._paths(paths)

    def _spans(self, row: Row, y: int) -> Iterator[str]:
        paths: dict[str, list[str]] = {}
        for span in row.spans:
            left, right = self._place(span.start_ns), self._place(span.end_ns)
            right = max(right - 0.5 if right - left > 3 else right, left + 0.5)
            shape = _rectangle(left, y, right, y + self.row_height)
            if self.tooltips:
                tip = f"<title>{_text(_tip(span))}</title>"
                yield f'<path class="{self.classes[span.category]}" d="{shape}">{tip}</path>'
            else:
                paths.setdefault(span.category, []).append(shape)
        yield from self._paths(paths)
        if self.row_height == _ROW:
            yield from (label for span in row.spans for label in self._label(span, y))

    def _label(self, span: Span, y: int) -> Iterator[str]:
        left, right = self._place(span.start_ns), self._place(span.end_ns)
        if right - left >= len(span.name) * _CHARACTER + 2:
            middle = _number((left + right) / 2)
            shown = f'class="i{self.classes[span.category]} mid" pointer-events="none"'
            yield f'<text {shown} x="{middle}" y="{y + 13}">{_text(span.name)}</text>'

    def _paths(self, paths: Mapping[str, list[str]]) -> Iterator[str]:
        for category in sorted(paths, key=self.classes.__getitem__):
            yield f'<path class="{self.classes[category]}" d="{"".join(paths[category])}"/>'

    def _panels(self) -> Iterator[str]:
        y = self.rows_end + 22
        for index, panel in enumerate(self.picture.panels):
            top = y + index * (_PANEL + 18) + 14
            if index == 0:
                yield from self._legend(self.picture.counter_looks, self.left, top - 4)
            yield from self._panel(panel, top)

    def _panel(self, panel: Panel, top: int) -> Iterator[str]:
        bottom = top + _PANEL
        yield f'<text class="ink" x="{_MARGIN}" y="{bottom}">{_label_text(panel.process)}</text>'
        highest = format_amount(panel.highest, panel.unit)
        yield f'<text class="dim end" x="{self.left - 8}" y="{top + 9}">{_text(highest)}</text>'
        yield f'<text class="dim end" x="{self.left - 8}" y="{bottom}">0</text>'
        yield self._lane(top, _PANEL)
        for counter in panel.counters:
            colour = self.picture.counter_looks[counter.name].colour
            steps = [f"M{self.left} {bottom}"]
            for time, value in counter.points:
                part = min(1.0, max(0.0, value / panel.highest)) if panel.highest > 0 else 0.0
                steps.append(f"H{self._x(time)}V{_number(bottom - _PANEL * part)}")
            steps.append(f"H{self.left + self.plot_width}")
            yield f'<path class="line" stroke="{colour}" d="{"".join(steps)}"/>'

    def _lane(self, y: int, height: int) -> str:
        return f'<rect class="lane" x="{self.left}" y="{y}" width="{self.plot_width}" height="{height}"/>'

    def _place(self, time_ns: float) -> float:
        return self.left + self.plot_width * time_ns / self.picture.end_ns

    def _x(self, time_ns: float) -> str:
        return _number(self._place(time_ns))


def _tip(span: Span) -> str:
    times = f"{format_time(span.start_ns)} to {format_time(span.end_ns)}"
    details = "".join(f"\n{name}: {value}" for name, value in span.args.items())
    return f"{span.name}\n{times}, {format_time(span.end_ns - span.start_ns)}{details}"


def _rectangle(left: float, top: float, right: float, bottom: float) -> str:
    width, height = _number(right - left), _number(bottom - top)
    return f"M{_number(left)} {_number(top)}h{width}v{height}h-{width}z"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _label_text(text: str) -> str:
    """Cut a name that would run into the picture."""
    return _text(text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1] + "…")


def _text(text: str) -> str:
    return escape(_clean(text))


def _clean(text: str) -> str:
    """Replace what no XML document may hold."""
    return _NOT_XML.sub("\ufffd", text)
