"""Chrome trace JSON: what is written is valid, exact, ordered, and small enough."""

import gzip
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk.timeline import Counter, Flow, Span, Timeline, Track, perfetto
from dtk.timeline.perfetto import encode_trace, microseconds
from dtk.timeline.perfetto_check import check_trace
from tests.timeline.samples import large, timelines, zeropp

GOLDEN = Path(__file__).parent / "golden"


def events_of(content: bytes) -> list[dict[str, Any]]:
    return list(json.loads(content, parse_float=Decimal)["traceEvents"])


@given(timelines())
def test_random_timelines_pass_the_check(timeline: Timeline) -> None:
    assert check_trace(encode_trace(timeline).content) == []


@given(timelines(largest_ns=2**56))
@settings(max_examples=30)
def test_times_come_back_to_the_nanosecond(timeline: Timeline) -> None:
    events = [event for event in events_of(encode_trace(timeline).content) if event["ph"] == "X"]
    read = sorted((event["name"], round(event["ts"] * 1000), round(event["dur"] * 1000)) for event in events)
    assert read == sorted((span.name, span.start_ns, span.end_ns - span.start_ns) for span in timeline.spans)


@given(st.integers(0, 2**51 - 1))
def test_perfetto_reads_the_same_nanosecond_whether_it_rounds_or_cuts_off(time_ns: int) -> None:
    number = json.loads(microseconds(time_ns))
    assert round(number * 1000.0) == time_ns
    assert int(number * 1000.0) == time_ns


def test_a_time_that_a_product_of_doubles_would_miss_is_one_double_up() -> None:
    assert int(1.001 * 1000.0) == 1000
    assert float(microseconds(1001)) == math.nextafter(1.001, 2)
    assert microseconds(1002) == "1.002"
    assert microseconds(5_000_000) == "5000"


def test_the_worked_example_is_written_as_it_always_was() -> None:
    assert encode_trace(zeropp()).content.decode() == (GOLDEN / "zeropp.json").read_text(encoding="utf-8")


def test_flows_leave_within_the_source_and_arrive_at_the_start_of_the_target() -> None:
    here, there = Track("rank 0", "compute"), Track("rank 1", "compute")
    source, target = Span(here, "F0", 1000, 3000), Span(there, "F1", 5000, 6000)
    other = Span(here, "F1", 3000, 4000)
    timeline = Timeline(
        "test", "simulated", (source, other, target), flows=(Flow(source, target, "activation"),)
    )
    start, end = (event for event in events_of(encode_trace(timeline).content) if event["ph"] in "sf")
    assert (start["pid"], start["tid"], start["ts"]) == (0, 1, Decimal("2.999"))
    assert (end["pid"], end["tid"], end["ts"], end["bp"]) == (1, 1, 5, "e")
    assert (start["id"], start["name"], start["cat"]) == (end["id"], end["name"], end["cat"])


def test_a_flow_at_a_span_without_length_is_told() -> None:
    track = Track("rank 0", "compute")
    source, target = Span(track, "F0", 0, 0), Span(track, "F1", 5, 6)
    trace = encode_trace(Timeline("test", "simulated", (source, target), flows=(Flow(source, target),)))
    assert trace.left_out == ("1 flow at a span without length is left out",)
    assert check_trace(trace.content) == []


def test_a_rank_is_its_pid_also_where_it_did_nothing() -> None:
    order = tuple(Track(f"rank {rank}", "compute") for rank in range(12))
    timeline = Timeline("test", "simulated", (Span(order[11], "F", 0, 1),), track_order=order)
    names = {
        event["pid"]: event["args"]["name"]
        for event in events_of(encode_trace(timeline).content)
        if event["name"] == "process_name"
    }
    assert names == {rank: f"rank {rank}" for rank in range(12)}


def test_arguments_that_json_does_not_know_become_text() -> None:
    args: dict[str, Any] = {"nan": math.nan, "inf": -math.inf, "text": 'a "b"\n\x00\ud800', "yes": True}
    timeline = Timeline("té\u2028st", "measured", (Span(Track("p\\", "t"), "a", 0, 1, "c", args),))
    content = encode_trace(timeline).content
    assert check_trace(content) == []
    (event,) = (event for event in events_of(content) if event["ph"] == "X")
    assert event["args"] == {**args, "nan": "nan", "inf": "-inf"}


def test_compressed_bytes_are_the_same_each_time() -> None:
    first, second = (encode_trace(zeropp(), compress=True).content for _ in range(2))
    assert first == second
    assert gzip.decompress(first) == encode_trace(zeropp()).content


@pytest.mark.parametrize("max_bytes", [400_000, 100_000])
def test_what_is_too_large_is_thinned_and_told(max_bytes: int) -> None:
    timeline = large(num_ranks=4, spans_of_each=1500)
    trace = encode_trace(timeline, max_bytes=max_bytes)
    assert len(trace.content) <= max_bytes
    assert check_trace(trace.content) == []
    document = json.loads(trace.content)
    assert document["otherData"]["left_out"] == list(trace.left_out)
    assert trace.left_out[0] == "flows and arguments of spans are left out"
    assert "neighbours shorter than" in trace.left_out[1]
    assert "6,000 spans became" in trace.left_out[1]
    for rank in range(4):
        spans = [one for one in document["traceEvents"] if one["ph"] == "X" and one["pid"] == rank]
        busy = sum(one.get("args", {}).get("busy_ns", one["dur"] * 1000) for one in spans)
        assert busy == pytest.approx(1500 * 9001)
        points = [
            one["args"]["bytes"] for one in document["traceEvents"] if one["ph"] == "C" and one["pid"] == rank
        ]
        assert max(points) == 96 * 2**20


def test_details_go_first_and_spans_stay_if_that_is_enough() -> None:
    timeline = large(num_ranks=2, spans_of_each=500)
    full, (told,) = encode_trace(timeline), encode_trace(timeline, max_bytes=250_000).left_out
    assert full.left_out == ()
    assert len(full.content) > 250_000
    assert told == "flows and arguments of spans are left out"


def test_a_cap_that_nothing_meets_still_gives_a_valid_file() -> None:
    trace = encode_trace(zeropp(), max_bytes=10)
    assert check_trace(trace.content) == []
    assert sum(event["ph"] == "X" for event in events_of(trace.content)) == 4


def test_counters_alone_make_a_trace() -> None:
    timeline = Timeline("test", "measured", (), (Counter("host", "free", ((0, 1), (5, 2.5)), unit="GB/s"),))
    content = encode_trace(timeline).content
    assert check_trace(content) == []
    assert [event["args"] for event in events_of(content) if event["ph"] == "C"] == [
        {"GB/s": 1},
        {"GB/s": Decimal("2.5")},
    ]


@given(timelines())
def test_the_estimate_of_the_size_is_never_too_large(timeline: Timeline) -> None:
    head = len(encode_trace(Timeline("random", "simulated", ())).content)
    assert perfetto._least_bytes(timeline) <= len(encode_trace(timeline).content) - head + 2
