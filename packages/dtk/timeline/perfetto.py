"""Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

A process is a `pid` (its place in the timeline: the rank), a track of it a `tid`, a flow a pair of events
bound to its spans (the innermost ones, where they nest), a counter a `C` event for each point.

It is written so that Perfetto reads back the very nanoseconds. Perfetto multiplies microseconds, as doubles,
by 1000, and some versions cut the fraction off: 1.001 becomes 1000 ns, and a span that then overlaps its
neighbour is dropped (as in google/perfetto issue 5012).

What would exceed the size that viewers bear is thinned out, and the file and the caller are told.
"""

import gzip
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from dtk.timeline.axis import format_time
from dtk.timeline.model import ArgumentValue, Flow, Span, Timeline, Track
from dtk.timeline.thinning import merge_close_points, merge_spans_of

__all__ = ["MAX_BYTES", "TraceFile", "encode_trace", "microseconds"]

MAX_BYTES: Final = 100_000_000  # before compression; chrome's limit was 256 MB, and 900 MB crashed Perfetto

# Made once: `json.dumps` with arguments makes an encoder a call.
_json: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_EXACT_BELOW_NS: Final = 2**51
# Of events at one time: the outer span first, then what binds to a span that is open.
_SPAN, _COUNTER, _FLOW_START, _FLOW_END = range(4)

# The shortest lines there can be; a flow has two.
_SPAN_BYTES, _FLOW_BYTES, _POINT_BYTES = 62, 140, 58

# Time, kind, the longer span first, the place among its like, and the line.
_Event = tuple[int, int, int, int, str]


@dataclass(frozen=True)
class TraceFile:
    """A trace's bytes, and in plain words what was left out to keep them few."""

    content: bytes
    left_out: tuple[str, ...]


def encode_trace(timeline: Timeline, *, compress: bool = False, max_bytes: int = MAX_BYTES) -> TraceFile:
    """Return the timeline as Chrome trace JSON; the same timeline gives the same bytes.

    Args:
        timeline: What to write.
        compress: With gzip, which Perfetto opens as well.
        max_bytes: Above that (before compression) it leaves out flows and the spans' arguments, and if that
            is not enough merges short neighbouring spans and close points of counters.
    """
    left_out = _unbound_note(timeline)
    content = _document(timeline, left_out) if _least_bytes(timeline) <= max_bytes else None
    if content is None or len(content) > max_bytes:
        left_out = ("flows and arguments of spans are left out",)
        timeline = _bare(timeline)
        content = _document(timeline, left_out)
    if len(content) > max_bytes:
        content, left_out = _merge(timeline, left_out, content, max_bytes)
    packed = gzip.compress(content, compresslevel=6, mtime=0) if compress else content
    return TraceFile(packed, left_out)


def microseconds(time_ns: int) -> str:
    """Return a time as a JSON number of microseconds from which Perfetto computes the same nanosecond.

    The digits are exact wherever the product of doubles does not fall short of it; there, they stand for the
    next double. From 2**51 nanoseconds (26 days), where that could be the next nanosecond, they are exact.
    """
    whole, rest = divmod(time_ns, 1000)
    if not rest:
        return str(whole)
    text = f"{whole}.{rest:03d}".rstrip("0")
    value = float(text)
    if time_ns < _EXACT_BELOW_NS and int(value * 1000.0) < time_ns:
        return repr(math.nextafter(value, math.inf))
    return text


def _least_bytes(timeline: Timeline) -> int:
    """Return what the document has at least, to save writing one that is far too large."""
    points = sum(len(counter.points) for counter in timeline.counters)
    spans, flows = len(timeline.spans), sum(map(_has_length, timeline.flows))
    return _SPAN_BYTES * spans + _FLOW_BYTES * flows + _POINT_BYTES * points


def _unbound_note(timeline: Timeline) -> tuple[str, ...]:
    unbound = sum(not _has_length(flow) for flow in timeline.flows)
    if unbound == 1:
        return ("1 flow at a span without length is left out",)
    return (f"{unbound:,} flows at spans without length are left out",) if unbound else ()


def _bare(timeline: Timeline) -> Timeline:
    spans = tuple(
        Span(span.track, span.name, span.start_ns, span.end_ns, span.category) for span in timeline.spans
    )
    return replace(timeline, spans=spans, flows=())


def _merge(
    timeline: Timeline, left_out: tuple[str, ...], content: bytes, max_bytes: int
) -> tuple[bytes, tuple[str, ...]]:
    """Merge ever longer spans until the document fits, or everything is shorter than what is merged."""
    told = tuple(left_out)
    bin_ns = max(1, timeline.end_ns // max(len(timeline.spans), 1))
    while len(content) > max_bytes and bin_ns <= timeline.end_ns:
        bin_ns *= 2
        spans = tuple(merge_spans_of(timeline, bin_ns))
        counters = tuple(merge_close_points(counter, bin_ns) for counter in timeline.counters)
        thinned = replace(timeline, spans=spans, counters=counters)
        told = (*left_out, _merge_note(timeline, thinned, bin_ns))
        content = _document(thinned, told)
    return content, told


def _merge_note(before: Timeline, after: Timeline, bin_ns: int) -> str:
    points = [sum(len(counter.points) for counter in each.counters) for each in (before, after)]
    spans = f"{len(before.spans):,} spans became {len(after.spans):,}"
    counted = f", {points[0]:,} points of counters {points[1]:,}" if points[0] > points[1] else ""
    return f"neighbours shorter than {format_time(bin_ns)} are merged: {spans}{counted}"


def _document(timeline: Timeline, left_out: Sequence[str]) -> bytes:
    pids = {process: index for index, process in enumerate(timeline.processes)}
    ids = _thread_ids(timeline, pids)
    events = [*_spans(timeline, ids), *_flows(timeline, ids), *_counters(timeline, pids)]
    events.sort()
    lines = ",\n".join([*_metadata(pids, ids), *(line for *_, line in events)])
    about = _json({"title": timeline.title, "basis": timeline.basis, "left_out": left_out})
    return f'{{"traceEvents":[\n{lines}\n],\n"displayTimeUnit":"ms","otherData":{about}}}\n'.encode()


def _thread_ids(timeline: Timeline, pids: Mapping[str, int]) -> Mapping[Track, tuple[int, int]]:
    """Return pid and tid of each track; tids count from 1 in each process."""
    found: dict[Track, tuple[int, int]] = {}
    count = dict.fromkeys(pids, 0)
    for track in timeline.tracks:
        count[track.process] += 1
        found[track] = pids[track.process], count[track.process]
    return found


def _metadata(pids: Mapping[str, int], ids: Mapping[Track, tuple[int, int]]) -> Iterator[str]:
    def event(name: str, pid: int, tid: int, args: Mapping[str, ArgumentValue]) -> str:
        return _json({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args})

    for process, pid in pids.items():
        yield event("process_name", pid, 0, {"name": process})
        yield event("process_sort_index", pid, 0, {"sort_index": pid})
    for track, (pid, tid) in ids.items():
        yield event("thread_name", pid, tid, {"name": track.thread})
        yield event("thread_sort_index", pid, tid, {"sort_index": tid})


def _spans(timeline: Timeline, ids: Mapping[Track, tuple[int, int]]) -> Iterator[_Event]:
    quoted = _quoted()
    for track, spans in timeline.spans_of_track.items():
        pid, tid = ids[track]
        for place, span in enumerate(spans):
            duration = span.end_ns - span.start_ns
            args = f',"args":{_arguments(span.args)}' if span.args else ""
            line = (
                f'{{"ph":"X","name":{quoted(span.name)},"cat":{quoted(span.category)},"pid":{pid},"tid":{tid},'
                f'"ts":{microseconds(span.start_ns)},"dur":{microseconds(duration)}{args}}}'
            )
            yield span.start_ns, _SPAN, -duration, place, line


def _flows(timeline: Timeline, ids: Mapping[Track, tuple[int, int]]) -> Iterator[_Event]:
    quoted = _quoted()
    bound = sorted(filter(_has_length, timeline.flows), key=_flow_order)
    for number, flow in enumerate(bound, start=1):
        what = f'"name":{quoted(flow.name or "flow")},"cat":"flow","id":{number}'
        # The last nanosecond of the source, or where the target starts before that: in the open span.
        leaves_ns = min(flow.source.end_ns - 1, flow.target.start_ns)
        for time_ns, span, phase, kind in (
            (leaves_ns, flow.source, '"ph":"s"', _FLOW_START),
            (flow.target.start_ns, flow.target, '"ph":"f","bp":"e"', _FLOW_END),
        ):
            pid, tid = ids[span.track]
            where = f'"pid":{pid},"tid":{tid},"ts":{microseconds(time_ns)}'
            yield time_ns, kind, 0, number, f"{{{phase},{what},{where}}}"


def _has_length(flow: Flow) -> bool:
    return all(span.start_ns < span.end_ns for span in (flow.source, flow.target))


def _flow_order(flow: Flow) -> tuple[int, Track, int, Track, str]:
    return flow.source.start_ns, flow.source.track, flow.target.start_ns, flow.target.track, flow.name


def _counters(timeline: Timeline, pids: Mapping[str, int]) -> Iterator[_Event]:
    order = sorted(timeline.counters, key=lambda counter: (pids[counter.process], counter.name))
    for place, counter in enumerate(order):
        head = f'{{"ph":"C","name":{_json(counter.name)},"pid":{pids[counter.process]},"tid":0,"ts":'
        unit = _json(counter.unit)
        for time_ns, value in counter.points:
            line = f'{head}{microseconds(time_ns)},"args":{{{unit}:{_json(value)}}}}}'
            yield time_ns, _COUNTER, 0, place, line


def _arguments(args: Mapping[str, ArgumentValue]) -> str:
    """Write arguments as JSON, which knows neither NaN nor infinity."""
    return _json(
        {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in args.items()
        }
    )


def _quoted() -> Callable[[str], str]:
    """Return a function that writes a text as JSON and remembers it: most names come many times."""
    return lru_cache(maxsize=1 << 16)(_json)
