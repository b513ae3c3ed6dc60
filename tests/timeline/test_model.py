"""A timeline refuses what cannot have been, and orders what it holds."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.timeline import Counter, Flow, Span, Timeline, Track
from tests.timeline.samples import overlap_in_part, timelines, zeropp

TRACK = Track("rank 0", "compute")


def timeline_of(*spans: Span, **others: Any) -> Timeline:
    return Timeline("test", "simulated", spans, **others)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6))
def test_a_track_is_refused_exactly_if_two_spans_overlap_in_part(
    pairs: list[tuple[int, int]],
) -> None:
    times = [(min(pair), max(pair)) for pair in pairs]
    spans = [Span(TRACK, "a", start, end) for start, end in times]
    if any(overlap_in_part(*two) for two in combinations(times, 2)):
        with pytest.raises(InputError, match="overlap in part on rank 0, compute"):
            timeline_of(*spans)
    else:
        assert len(timeline_of(*spans).spans_of_track.get(TRACK, ())) == len(spans)


def test_overlap_on_two_tracks_is_fine() -> None:
    timeline_of(Span(TRACK, "a", 0, 5), Span(Track("rank 0", "send"), "b", 3, 8))


@given(timelines(), st.randoms())
def test_the_order_of_spans_means_nothing(timeline: Timeline, random: Any) -> None:
    shuffled = list(timeline.spans)
    random.shuffle(shuffled)
    other = Timeline("random", "simulated", tuple(shuffled), timeline.counters, timeline.flows)
    assert dict(other.spans_of_track) == dict(timeline.spans_of_track)
    for name in ("tracks", "categories", "end_ns"):
        assert getattr(other, name) == getattr(timeline, name)


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (Span(TRACK, "a", -1, 5), "must start at 0"),
        (Span(TRACK, "a", 5, 4), "not end before"),
        (Span(TRACK, "a", 0, 1.5), "whole nanoseconds"),  # type: ignore[arg-type]
        (Span(TRACK, "a", True, 2), "whole nanoseconds"),
        (Span(TRACK, "", 0, 1), "need names"),
        (Span(Track("rank 0", ""), "a", 0, 1), "need names"),
    ],
)
def test_bad_spans_are_refused(span: Span, words: str) -> None:
    with pytest.raises(InputError, match=words):
        timeline_of(span)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (((5, 1), (5, 2)), "must rise"),
        (((5, 1), (4, 2)), "must rise"),
        (((-1, 1),), "from 0"),
        (((0.5, 1),), "whole nanoseconds"),
        (((0, float("nan")),), "finite"),
        (((0, float("inf")),), "finite"),
    ],
)
def test_bad_counters_are_refused(points: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        timeline_of(counters=(Counter("rank 0", "held", points),))


def test_a_counter_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InputError, match="is there twice"):
        timeline_of(counters=(Counter("rank 0", "held", ()), Counter("rank 0", "held", ((0, 1),))))


def test_flows_go_forward_between_spans_of_the_timeline() -> None:
    early, late = Span(TRACK, "a", 0, 5), Span(TRACK, "b", 5, 6)
    timeline_of(early, late, flows=(Flow(early, late),))
    with pytest.raises(InputError, match="backward in time"):
        timeline_of(early, late, flows=(Flow(late, early),))
    with pytest.raises(InputError, match="must be spans of the timeline"):
        timeline_of(early, flows=(Flow(early, late),))


def test_an_unknown_basis_is_refused() -> None:
    with pytest.raises(InputError, match="one of measured, emulated"):
        Timeline("test", "guessed", ())


def test_tracks_follow_the_given_order_then_names_with_numbers_by_value() -> None:
    names = ["rank 10", "rank 9", "device", "rank 9"]
    spans = [Span(Track(name, f"t{index}"), "a", 0, 1) for index, name in enumerate(names)]
    first = Track("rank 9", "idle")
    timeline = timeline_of(*spans, track_order=(first,), counters=(Counter("host", "held", ()),))
    shown = [(track.process, track.thread) for track in timeline.tracks]
    assert shown == [
        ("rank 9", "idle"),
        ("rank 9", "t1"),
        ("rank 9", "t3"),
        ("device", "t2"),
        ("rank 10", "t0"),
    ]
    assert timeline.processes == ("rank 9", "device", "rank 10", "host")
    assert timeline.spans_of_track[first] == ()


def test_categories_follow_the_given_order() -> None:
    timeline = timeline_of(
        Span(TRACK, "a", 0, 1, "z"), Span(TRACK, "b", 1, 2, "c"), category_order=("q", "z")
    )
    assert timeline.categories == ("q", "z", "c")


def test_the_end_is_that_of_the_last_span_or_value() -> None:
    assert zeropp().end_ns == 27 * 10**6
    assert timeline_of().end_ns == 0
    assert timeline_of(counters=(Counter("rank 0", "held", ((7, 1),)),)).end_ns == 7


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"spans": (Span(TRACK, "a", 0, 2**63),)}, r"'a': times must be 9223372036854775807 ns at most"),
        ({"spans": (Span(TRACK, "a", 0, 1, "", {"x": object()}),)}, "arguments must be texts, numbers"),  # type: ignore[dict-item]
        ({"counters": (Counter("rank 0", "", ()),)}, "counters and processes need names"),
        ({"counters": (Counter("", "held", ()),)}, "counters and processes need names"),
        ({"counters": (Counter("rank 0", "held", ((2**63, 1),)),)}, "times must be whole nanoseconds"),
        ({"counters": (Counter("rank 0", "held", ((0, 10**400),)),)}, "values must be finite numbers"),
        ({"counters": (Counter("rank 0", "held", ((0, "x"),)),)}, "values must be finite numbers"),  # type: ignore[arg-type]
    ],
)
def test_what_no_viewer_shows_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Timeline("test", "simulated", **{"spans": ()} | values)
