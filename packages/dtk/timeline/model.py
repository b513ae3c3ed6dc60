"""What a timeline holds: spans on tracks, values over time, and which span led to which.

Times are integer nanoseconds from the start. A track is one thing that happens after the other (a stream, a
thread, a link), so its spans nest or are disjoint; what overlaps goes on two tracks.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final

from dtk.errors import InputError
from dtk.timeline.nesting import find_overlap

__all__ = ["BASES", "ArgumentValue", "Counter", "Flow", "Span", "Timeline", "Track"]

ArgumentValue = str | int | float | bool

MAX_TIME_NS: Final = 2**63 - 1  # as viewers have it
BASES: Final = ("measured", "emulated", "simulated", "analytic", "published")


@dataclass(frozen=True, slots=True, order=True)
class Track:
    """One stream of a process.

    Attributes:
        process: `rank 0`, `device`.
        thread: What it does one at a time: `compute`, `send to rank 1`.
    """

    process: str
    thread: str


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time.

    Attributes:
        track: Where.
        name: Short, since it stands inside the span where it fits: `F0.3`.
        start_ns: From the start of the timeline.
        end_ns: Not before `start_ns`.
        category: What gives it its colour.
        args: What a viewer shows of a selected span.
    """

    track: Track
    name: str
    start_ns: int
    end_ns: int
    category: str = ""
    args: Mapping[str, ArgumentValue] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Counter:
    """A value over time, such as memory; it holds from each point to the next, and is 0 before the first.

    Attributes:
        process: Whose value.
        name: What is counted.
        points: Pairs of time in nanoseconds and value, by strictly rising time.
        unit: Of the values; `bytes` are shown with binary prefixes.
    """

    process: str
    name: str
    points: tuple[tuple[int, int | float], ...]
    unit: str = "bytes"


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow from one span of a timeline to another that waited for it: a message, a dependency."""

    source: Span
    target: Span
    name: str = ""


@dataclass(frozen=True)
class Timeline:
    """Immutable; checked when it is made. The order of `spans`, `counters` and `flows` means nothing.

    Attributes:
        title: Of the picture.
        basis: What the times rest on: measured, emulated, simulated, analytic or published.
        spans: Those of a track nest or are disjoint.
        counters: One for each process and name.
        flows: Between spans of this timeline, forward in time.
        track_order: Tracks in the order in which to show them, empty ones too; others follow by name, numbers
            in them by value.
        category_order: Categories in the order in which they take their colours, also those that do not
            occur: the same order gives the same colours in another timeline. Others follow by name.

    Raises:
        InputError: If anything of that does not hold.
    """

    title: str
    basis: str
    spans: tuple[Span, ...]
    counters: tuple[Counter, ...] = ()
    flows: tuple[Flow, ...] = ()
    track_order: tuple[Track, ...] = ()
    category_order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.basis not in BASES:
            raise InputError(
                "not a basis", field="basis", value=self.basis, hint=f"one of {', '.join(BASES)}"
            )
        _check_spans(self.spans)
        for track, spans in self.spans_of_track.items():
            if overlap := find_overlap((span.start_ns, span.end_ns) for span in spans):
                raise _overlap_error(track, spans[overlap.earlier], spans[overlap.later])
        _check_counters(self.counters)
        _check_flows(self.flows, self.spans)

    @cached_property
    def spans_of_track(self) -> Mapping[Track, tuple[Span, ...]]:
        """For each track, in the order of `tracks`, its spans: by start, outer ones before inner ones."""
        found: dict[Track, list[Span]] = {}
        for span in self.spans:
            found.setdefault(span.track, []).append(span)
        declared = list(dict.fromkeys(self.track_order))
        others = sorted(set(found) - set(declared), key=lambda track: _natural(track.process, track.thread))
        return {
            track: tuple(sorted(found.get(track, ()), key=_outer_first)) for track in [*declared, *others]
        }

    @cached_property
    def tracks(self) -> tuple[Track, ...]:
        """All tracks, in the order in which to show them, those of a process together."""
        processes = dict.fromkeys(track.process for track in self.spans_of_track)
        place = {process: index for index, process in enumerate(processes)}
        return tuple(sorted(self.spans_of_track, key=lambda track: place[track.process]))

    @cached_property
    def processes(self) -> tuple[str, ...]:
        """All processes in the order in which to show them."""
        counted = sorted((counter.process for counter in self.counters), key=_natural)
        return tuple(dict.fromkeys([*(track.process for track in self.tracks), *counted]))

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """All categories, in the order in which they take their colours."""
        occurring = {span.category for span in self.spans}
        return tuple(dict.fromkeys([*self.category_order, *sorted(occurring)]))

    @cached_property
    def end_ns(self) -> int:
        """When the last span has ended and the last value was taken."""
        ends = (span.end_ns for span in self.spans)
        points = (counter.points[-1][0] for counter in self.counters if counter.points)
        return max(max(ends, default=0), max(points, default=0))


def _outer_first(span: Span) -> tuple[int, int, str, str]:
    return span.start_ns, -span.end_ns, span.name, span.category


def _natural(*names: str) -> list[tuple[int, int, str]]:
    """Sort key that puts `rank 10` after `rank 9`."""
    parts = (part for name in names for part in [*re.split(r"(\d+)", name), ""])
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _check_spans(spans: Iterable[Span]) -> None:
    for span in spans:
        start, end = span.start_ns, span.end_ns
        if type(start) is not int or type(end) is not int:
            wrong = "times must be whole nanoseconds"
            raise InputError(f"span {span.name!r}: {wrong}", field="spans", value=(start, end))
        if not 0 <= start <= end:
            wrong = "must start at 0 or later, and not end before that"
            raise InputError(f"span {span.name!r}: {wrong}", field="spans", value=(start, end))
        if not (span.name and span.track.process and span.track.thread):
            raise InputError("spans, threads and processes need names", field="spans", value=(start, end))
        if end > MAX_TIME_NS:
            wrong = f"times must be {MAX_TIME_NS} ns at most"
            raise InputError(f"span {span.name!r}: {wrong}", field="spans", value=(start, end))
        if not all(isinstance(value, (str, int, float)) for value in span.args.values()):
            wrong = "arguments must be texts, numbers or truth values"
            raise InputError(f"span {span.name!r}: {wrong}", field="spans", value=dict(span.args))


def _overlap_error(track: Track, earlier: Span, later: Span) -> InputError:
    times = f"{earlier.start_ns} to {earlier.end_ns} ns and {later.start_ns} to {later.end_ns} ns"
    return InputError(
        f"{earlier.name!r} and {later.name!r} overlap in part on {track.process}, {track.thread}: {times}",
        field="spans",
        hint="spans of a track nest or are disjoint; put what runs at the same time on two tracks",
    )


def _check_counters(counters: Sequence[Counter]) -> None:
    seen: set[tuple[str, str]] = set()
    for counter in counters:
        where = f"{counter.name!r} of {counter.process}"
        if (counter.process, counter.name) in seen:
            raise InputError(f"{where} is there twice", field="counters")
        seen.add((counter.process, counter.name))
        if not (counter.process and counter.name):
            raise InputError("counters and processes need names", field="counters", value=where)
        times = [time for time, _ in counter.points]
        if any(type(time) is not int or not 0 <= time <= MAX_TIME_NS for time in times):
            raise InputError(f"{where}: times must be whole nanoseconds from 0", field="counters")
        if any(one >= other for one, other in pairwise(times)):
            raise InputError(f"{where}: times must rise from point to point", field="counters")
        if not all(map(_is_finite, (value for _, value in counter.points))):
            raise InputError(f"{where}: values must be finite numbers", field="counters")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except (OverflowError, TypeError):  # larger than any float, or no number
        return False


def _check_flows(flows: Iterable[Flow], spans: Iterable[Span]) -> None:
    known = {id(span) for span in spans}
    for flow in flows:
        pair = f"{flow.source.name!r} to {flow.target.name!r}"
        if id(flow.source) not in known or id(flow.target) not in known:
            hint = "build flows from the very objects in `spans`"
            raise InputError(f"{pair}: both must be spans of the timeline", field="flows", hint=hint)
        if flow.target.start_ns < flow.source.start_ns:
            raise InputError(f"{pair}: runs backward in time", field="flows")
