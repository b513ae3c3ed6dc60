"""A strict check of Chrome trace JSON: what makes Perfetto or chrome://tracing drop or misplace a part.

It enforces more than the format does, since viewers are silent about most of it: whole-number ids, names and
places for every process and thread, events by time, spans that nest, flows that begin and end inside spans.
It knows nothing of how dtk writes traces, and reads those of others too: the events X, s, f, C and M.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from dtk.timeline.nesting import find_overlap

__all__ = ["MAX_BYTES", "check_trace", "check_trace_file"]

MAX_BYTES: Final = 100_000_000

_GZIP_MAGIC: Final = b"\x1f\x8b"
_METADATA: Final = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
_Event = Mapping[str, Any]


def check_trace_file(path: Path) -> list[str]:
    """Return what is wrong with a trace file, `.json` or gzip; nothing if it is good."""
    return check_trace(path.read_bytes())


def check_trace(content: bytes) -> list[str]:
    """Return what is wrong with a trace, a line each; nothing if it is good."""
    if content.startswith(_GZIP_MAGIC):
        try:
            # Never unpacks more than what is accepted, whatever the file claims.
            content = zlib.decompressobj(wbits=31).decompress(content, MAX_BYTES + 1)
        except zlib.error as error:
            return [f"not gzip: {error}"]
    if len(content) > MAX_BYTES:
        return [f"more than {MAX_BYTES:,} bytes; viewers get slow or crash"]
    try:
        document = json.loads(content, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return [f"not JSON: {error}"]
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        return ["must be an object with a list `traceEvents`"]
    if wrong := [f"event {index}: {text}" for index, event in enumerate(events) for text in _shape(event)]:
        return wrong
    return [*_order(events), *_names(events), *_nesting(events), *_flow_ends(events)]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _shape(event: object) -> Iterator[str]:
    """Yield what is wrong with one event alone."""
    if not isinstance(event, dict):
        yield "not an object"
        return
    phase = event.get("ph")
    if phase not in ("X", "s", "f", "C", "M"):
        yield f"phase {phase!r} is none of X, s, f, C, M"
    for field in ("pid", "tid"):
        if type(event.get(field)) is not int or event[field] < 0:
            yield f"{field} must be a whole number from 0, not {event.get(field)!r}"
    if not isinstance(event.get("name"), str) or not event["name"]:
        yield "needs a name"
    for field in ("ts", "dur") if phase == "X" else ("ts",):
        value = event.get(field)
        if isinstance(value, bool) or not isinstance(value, int | Decimal) or value < 0:
            yield f"{field} must be a number of microseconds from 0, not {value!r}"
    if "args" in event and not isinstance(event["args"], dict):
        yield "args must be an object"
    elif phase in ("C", "M"):
        yield from _values(event)
    if phase in ("s", "f") and (type(event.get("id")) is not int or not isinstance(event.get("cat"), str)):
        yield "a flow needs a whole number id and a category"
    if phase == "f" and event.get("bp") != "e":
        yield 'the end of a flow needs "bp":"e", or it binds to the next span'


def _values(event: _Event) -> Iterator[str]:
    args = event.get("args") or {}
    if event.get("ph") == "C":
        if not args or any(isinstance(v, bool) or not isinstance(v, int | Decimal) for v in args.values()):
            yield "a counter needs numbers as args"
        return
    known = _METADATA.get(str(event.get("name")))
    if known is None:
        yield f"metadata {event.get('name')!r} is none of {', '.join(_METADATA)}"
    elif type(args.get(known[0])) is not known[1]:
        yield f"{event['name']} needs {known[0]}"


def _order(events: list[_Event]) -> Iterator[str]:
    times = [event["ts"] for event in events if event["ph"] != "M"]
    for index, (one, other) in enumerate(pairwise(times)):
        if other < one:
            yield f"events are not sorted by ts: {other} after {one} (timed event {index + 1})"
            return


def _names(events: list[_Event]) -> Iterator[str]:
    """Yield processes and threads without name or place, and ones that are named twice."""
    told: dict[tuple[str, int, int], _Event] = {}
    for event in events:
        if event["ph"] == "M":
            key = event["name"], event["pid"], event["tid"] if event["name"].startswith("thread") else 0
            if key in told:
                yield f"{key[0]} of pid {key[1]}, tid {key[2]} is there twice"
            told[key] = event
    timed = [event for event in events if event["ph"] != "M"]
    threads = {(event["pid"], event["tid"]) for event in timed if event["ph"] != "C"}
    for kind in ("process_name", "process_sort_index"):
        for pid in sorted({event["pid"] for event in timed}):
            if (kind, pid, 0) not in told:
                yield f"pid {pid} has no {kind}"
    for kind in ("thread_name", "thread_sort_index"):
        for pid, tid in sorted(threads):
            if (kind, pid, tid) not in told:
                yield f"pid {pid}, tid {tid} has no {kind}"


def _nesting(events: list[_Event]) -> Iterator[str]:
    """Yield threads whose spans overlap in part, as Perfetto reads the times now and as it once did."""
    for reading, how in ((_rounded, ""), (_cut_off, " in versions of Perfetto that cut off fractions")):
        spans: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for index, event in enumerate(events):
            if event["ph"] == "X":
                start = reading(event["ts"])
                place = spans.setdefault((event["pid"], event["tid"]), [])
                place.append((start, -(start + reading(event["dur"])), index))
        for (pid, tid), found in spans.items():
            found.sort()
            if overlap := find_overlap((start, -end) for start, end, _ in found):
                names = [events[found[position][2]]["name"] for position in overlap]
                yield f"pid {pid}, tid {tid}: spans {names[0]!r} and {names[1]!r} overlap in part{how}"


def _flow_ends(events: list[_Event]) -> Iterator[str]:
    """Yield flows without both ends, backward ones, and ends outside every span."""
    open_until: dict[tuple[int, int], int] = {}
    ends: dict[tuple[str, int], list[_Event]] = {}
    for event in events:
        thread = event["pid"], event["tid"]
        if event["ph"] == "X":
            end = _rounded(event["ts"]) + _rounded(event["dur"])
            open_until[thread] = max(open_until.get(thread, 0), end)
        elif event["ph"] in ("s", "f"):
            ends.setdefault((event["cat"], event["id"]), []).append(event)
            if _rounded(event["ts"]) >= open_until.get(thread, 0):
                side = "start" if event["ph"] == "s" else "end"
                yield f"the {side} of flow {event['id']} ({event['name']}) lies in no span"
    for (_, number), pair in ends.items():
        if [event["ph"] for event in pair] != ["s", "f"]:
            yield f"flow {number} must be one s and then one f, not {', '.join(e['ph'] for e in pair)}"


def _rounded(value: int | Decimal) -> int:
    return round(value * 1000)


def _cut_off(value: int | Decimal) -> int:
    return value * 1000 if isinstance(value, int) else int(float(value) * 1000.0)
