"""The check of traces finds each fault that it is there for, and accepts other people's good traces."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.timeline.perfetto_check import check_trace, check_trace_file
from tests.timeline.samples import overlap_in_part

Events = list[dict[str, Any]]


def good() -> Events:
    """Return a small good trace: two named threads, nested spans, a flow, a counter."""
    metadata = [
        {"ph": "M", "name": name, "pid": 0, "tid": tid, "ts": 0, "args": args}
        for tid in (1, 2)
        for name, args in (("thread_name", {"name": f"t{tid}"}), ("thread_sort_index", {"sort_index": tid}))
    ]
    metadata += [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "rank 0"}},
        {"ph": "M", "name": "process_sort_index", "pid": 0, "tid": 0, "ts": 0, "args": {"sort_index": 0}},
    ]
    flow = {"name": "go", "cat": "flow", "id": 1, "pid": 0}
    return [
        *metadata,
        {"ph": "X", "name": "outer", "pid": 0, "tid": 1, "ts": 0, "dur": 10},
        {"ph": "C", "name": "held", "pid": 0, "tid": 0, "ts": 0, "args": {"bytes": 5}},
        {"ph": "X", "name": "inner", "pid": 0, "tid": 1, "ts": 2, "dur": 3.5},
        {**flow, "ph": "s", "tid": 1, "ts": 3},
        {"ph": "X", "name": "later", "pid": 0, "tid": 2, "ts": 20, "dur": 1},
        {**flow, "ph": "f", "bp": "e", "tid": 2, "ts": 20},
    ]


def check(events: object) -> list[str]:
    return check_trace(json.dumps({"traceEvents": events}).encode())


def changed(name: str, phase: str = "X", /, **change: Any) -> Callable[[Events], object]:
    """Return a function that changes one event of a trace; None as a value drops the field."""

    def apply(events: Events) -> object:
        event = next(one for one in events if one["name"] == name and one["ph"] == phase)
        event.update(change)
        for field in [field for field, value in change.items() if value is None]:
            del event[field]
        return events

    return apply


def without(name: str, phase: str, tid: int | None = None) -> Callable[[Events], object]:
    return lambda events: [
        one
        for one in events
        if not (one["name"] == name and one["ph"] == phase and tid in (None, one["tid"]))
    ]


def test_a_good_trace_passes() -> None:
    assert check(good()) == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda events: {}, "a list `traceEvents`"),
        (lambda events: [*events, 5], "not an object"),
        (changed("outer", ph="B"), "phase 'B'"),
        (changed("outer", pid=0.5), "pid must be a whole number"),
        (changed("outer", tid="1"), "tid must be a whole number"),
        (changed("outer", tid=True), "tid must be a whole number"),
        (changed("outer", pid=-1), "pid must be"),
        (changed("inner", ts=-2), "ts must be"),
        (changed("inner", ts="2"), "ts must be"),
        (changed("inner", dur=None), "dur must be"),
        (changed("inner", dur=-1), "dur must be"),
        (changed("inner", name=""), "needs a name"),
        (changed("inner", args=3), "args must be an object"),
        (changed("inner", ts=8), "spans 'outer' and 'inner' overlap in part"),
        (changed("later", ts=1), "not sorted by ts"),
        (changed("held", "C", args={}), "a counter needs numbers"),
        (changed("held", "C", args={"bytes": "5"}), "a counter needs numbers"),
        (changed("held", "C", pid=7), "pid 7 has no process_name"),
        (changed("go", "f", bp=None), '"bp":"e"'),
        (changed("go", "s", id="a"), "whole number id"),
        (changed("go", "s", cat="other"), "must be one s and then one f"),
        (changed("go", "s", ts=15), "the start of flow 1 (go) lies in no span"),
        (changed("go", "f", ts=21), "the end of flow 1 (go) lies in no span"),
        (without("go", "f"), "must be one s and then one f, not s"),
        (without("thread_name", "M", 2), "pid 0, tid 2 has no thread_name"),
        (without("thread_sort_index", "M", 1), "pid 0, tid 1 has no thread_sort_index"),
        (without("process_name", "M"), "pid 0 has no process_name"),
        (without("process_sort_index", "M"), "pid 0 has no process_sort_index"),
        (lambda events: [events[0], *events], "thread_name of pid 0, tid 1 is there twice"),
        (changed("process_name", "M", args={"name": 3}), "process_name needs name"),
        (changed("process_name", "M", name="labels"), "metadata 'labels'"),
    ],
)
def test_each_fault_is_found(damage: Callable[[Events], object], words: str) -> None:
    faults = check(damage(good()))
    assert any(words in fault for fault in faults), faults


def test_nan_and_broken_text_are_found() -> None:
    text = json.dumps({"traceEvents": good()})
    assert check_trace(text.replace("3.5", "NaN").encode()) == ["not JSON: NaN is no JSON number"]
    assert check_trace(text.replace("3.5", "Infinity").encode())[0].startswith("not JSON")
    assert check_trace(text[:-2].encode())[0].startswith("not JSON")
    assert check_trace(b"\xff\xfe{}")[0].startswith("not JSON")
    assert check_trace(b"[" * 100_000)[0].startswith("not JSON")
    assert check_trace(b"\x1f\x8bno")[0].startswith("not gzip")


def test_a_span_that_overlaps_only_where_fractions_are_cut_off_is_found() -> None:
    # 1.001 * 1000.0 falls just short of 1001: the second span begins one nanosecond early.
    times = {"before": (0.001, 1), "after": (1.001, 1)}
    spans = [
        {"ph": "X", "name": name, "pid": 0, "tid": 1, "ts": ts, "dur": dur}
        for name, (ts, dur) in times.items()
    ]
    (fault,) = check([*good()[:6], *spans])
    assert fault.endswith(
        "'before' and 'after' overlap in part in versions of Perfetto that cut off fractions"
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=5))
def test_partial_overlap_is_found_exactly(pairs: list[tuple[int, int]]) -> None:
    times = sorted(((min(pair), max(pair)) for pair in pairs), key=lambda time: time[0])
    spans = [
        {"ph": "X", "name": "a", "pid": 0, "tid": 1, "ts": start, "dur": end - start} for start, end in times
    ]
    wrong = any(overlap_in_part(one, other) for one in times for other in times)
    assert bool(check([*good()[:6], *spans])) == wrong


def test_gzip_is_accepted_and_bombs_are_not(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": good()}).encode()))
    assert check_trace_file(path) == []
    path.write_bytes(gzip.compress(b" " * 100_000_001))
    assert check_trace_file(path) == ["more than 100,000,000 bytes; viewers get slow or crash"]
