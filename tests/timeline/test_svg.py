"""The SVG is well-formed, stays small, shows what it should, and says what it merges."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk.timeline import Counter, Span, Timeline, Track
from dtk.timeline.svg import draw_svg
from tests.timeline.samples import MS, large, timelines, zeropp

GOLDEN = Path(__file__).parent / "golden" / "zeropp.svg"
SVG = "{http://www.w3.org/2000/svg}"


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(document).iter(f"{SVG}text")]


@given(timelines())
@settings(max_examples=50)
def test_random_timelines_are_well_formed(timeline: Timeline) -> None:
    root = ET.fromstring(draw_svg(timeline).text)
    assert root.tag == f"{SVG}svg"
    drawn = [path for path in root.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
    assert len(drawn) == len(timeline.spans)


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_is_well_formed(title: str, name: str) -> None:
    span = Span(Track(name, name), name, 0, 5, name, {name: name})
    timeline = Timeline(title, "measured", (span,), (Counter(name, name, ((0, 1),), unit=name),))
    ET.fromstring(draw_svg(timeline).text.encode())


def test_the_worked_example_is_drawn_as_it_always_was() -> None:
    assert draw_svg(zeropp()).text == GOLDEN.read_text(encoding="utf-8")


def test_names_stand_inside_spans_where_they_fit() -> None:
    assert "F00" in texts(draw_svg(zeropp(), width=1200).text)
    assert "F00" not in texts(draw_svg(zeropp(), width=500).text)


def test_legend_axis_and_ranks_are_labelled() -> None:
    found = texts(draw_svg(zeropp()).text)
    assert found[:4] == ["ZeroPP (simulated)", "F", "B", "W"]
    assert {"rank 0", "rank 3", "compute", "0 ms", "25 ms", "activation", "3 MiB"} <= set(found)


def test_spans_lie_where_their_times_are() -> None:
    track = Track("rank 0", "compute")
    spans = (Span(track, "a", 0, 25 * MS, "F"), Span(track, "b", 75 * MS, 100 * MS, "B"))
    root = ET.fromstring(draw_svg(Timeline("test", "simulated", spans)).text)
    paths = [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.attrib["class"] in ("c0", "c1")]
    (first, width), (second, _) = (map(float, re.match(r"M([\d.]+) \d+h([\d.]+)", d).groups()) for d in paths)  # type: ignore[union-attr]
    (lane,) = (rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "lane")
    left, whole = float(lane.attrib["x"]), float(lane.attrib["width"])
    assert first == left
    assert width == pytest.approx(whole / 4, abs=1)
    assert second == pytest.approx(left + whole * 3 / 4, abs=0.01)


def test_nested_spans_take_a_row_each() -> None:
    track = Track("rank 0", "main")
    spans = (Span(track, "outer", 0, 10), Span(track, "inner", 2, 5), Span(track, "innermost", 3, 4))
    root = ET.fromstring(draw_svg(Timeline("test", "measured", spans)).text)
    assert sum(rect.get("class") == "lane" for rect in root.iter(f"{SVG}rect")) == 3


def test_both_colour_schemes_are_styled_and_nothing_is_fetched() -> None:
    document = draw_svg(zeropp()).text
    assert "prefers-color-scheme:dark" in document
    addresses = re.findall(r"https?:[^\s\"']*|url\([^)]*\)|href|<script|<image|@import", document)
    assert addresses == ["http://www.w3.org/2000/svg"]


def test_an_empty_timeline_is_a_picture_too() -> None:
    ET.fromstring(draw_svg(Timeline("nothing", "simulated", ())).text)


@pytest.mark.parametrize("num_ranks", [8, 64])
def test_large_timelines_stay_small_and_say_so(num_ranks: int) -> None:
    timeline = large(num_ranks, spans_of_each=2000)
    picture = draw_svg(timeline)
    assert len(picture.text) < 3_000_000
    note = picture.left_out[0]
    assert re.fullmatch(r"all rows show shares of time, in columns of [\d.]+ µs", note)
    assert note in texts(picture.text)


def test_shares_fill_as_much_of_the_picture_as_their_time() -> None:
    timeline = large(num_ranks=1, spans_of_each=2000)
    root = ET.fromstring(draw_svg(timeline).text)
    (lane,) = (
        rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "lane" and rect.get("height") == "18"
    )
    whole = float(lane.attrib["width"]) * 18
    for category in ("c0", "c1", "c2"):
        (path,) = (path for path in root.iter(f"{SVG}path") if path.get("class") == category)
        sizes = re.findall(r"h([\d.]+)v([\d.]+)", path.attrib["d"])
        area = sum(float(width) * float(height) for width, height in sizes)
        busy = sum(
            span.end_ns - span.start_ns for span in timeline.spans if span.category == "FBW"[int(category[1])]
        )
        assert area / whole == pytest.approx(busy / timeline.end_ns, rel=0.01)


def test_rows_and_panels_beyond_the_limit_are_told() -> None:
    tracks = [Track(f"rank {rank}", "compute") for rank in range(600)]
    counters = tuple(Counter(track.process, "held", ((0, 1),)) for track in tracks[:20])
    timeline = Timeline("wide", "simulated", tuple(Span(track, "a", 0, 5) for track in tracks), counters)
    picture = draw_svg(timeline)
    assert picture.left_out == ("88 more rows are not shown", "4 more panels of counters are not shown")
    assert {*picture.left_out} <= {*texts(picture.text)}
