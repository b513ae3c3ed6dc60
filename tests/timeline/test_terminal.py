"""The picture in characters: golden texts, and each column against the time it stands for."""

import io
from collections import Counter as Tally
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dtk.timeline import Span, Timeline, Track
from dtk.timeline.terminal import draw_terminal
from tests.timeline.samples import large, timelines, zeropp

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_worked_example_is_drawn_as_it_always_was(width: int) -> None:
    text = draw_terminal(zeropp(), width=width).plain + "\n"
    assert text == (GOLDEN / f"zeropp_{width}.txt").read_text(encoding="utf-8")


@given(timelines(), st.integers(40, 120))
def test_no_row_is_wider_than_the_terminal(timeline: Timeline, width: int) -> None:
    lines = draw_terminal(timeline, width=width).plain.splitlines()
    for line in lines[1:-2]:
        assert len(line) <= width


@given(timelines(largest_ns=60))
def test_where_columns_divide_the_unit_of_time_each_shows_the_innermost_category(timeline: Timeline) -> None:
    if not timeline.end_ns:
        return
    lines = draw_terminal(timeline, width=60 + len("rank 0 compute ")).plain.splitlines()
    label_width = len(lines[1 + len(timeline.tracks)]) - len(lines[1 + len(timeline.tracks)].lstrip())
    for track, row in zip(timeline.tracks, lines[1:], strict=False):
        cells = row[label_width:]
        for column, cell in enumerate(cells):
            time = column * timeline.end_ns // len(cells)
            there = [s for s in timeline.spans_of_track[track] if s.start_ns <= time < s.end_ns]
            length = min((s.end_ns - s.start_ns for s in there), default=0)
            assert cell in ({s.category for s in there if s.end_ns - s.start_ns == length} or {"."})


def test_a_column_shows_what_takes_most_of_it_and_says_so() -> None:
    track = Track("rank 0", "compute")
    times = {"F": (0, 59), "B": (59, 100), "W": (100, 149), "I": (200, 250), "O": (900, 1000)}
    spans = tuple(Span(track, name, start, end, name) for name, (start, end) in times.items())
    lines = draw_terminal(Timeline("test", "measured", spans), width=25).plain.splitlines()
    assert lines[1] == "rank 0 compute F:I......O"
    assert lines[3] == "B  F  I  O  W  . idle  : mostly idle"
    assert lines[4] == "1 µs in all, 1 column = 100 ns, showing what takes most of it"


def test_threads_can_be_chosen_and_further_rows_are_counted() -> None:
    tracks = [Track(f"rank {rank}", thread) for rank in range(30) for thread in ("compute", "send")]
    timeline = Timeline("test", "simulated", tuple(Span(track, "a", 0, 5, track.thread) for track in tracks))
    lines = draw_terminal(timeline, width=60, threads={"send"}, max_rows=10).plain.splitlines()
    assert [line[-1] for line in lines[1:11]] == ["S"] * 10
    assert "compute" not in "".join(lines)
    assert lines[-1].endswith("; 20 more tracks are not shown")


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw_terminal(Timeline("test", "simulated", ())).plain == "test (simulated)\nnothing to draw"


def test_colours_come_on_a_terminal_and_not_in_a_file() -> None:
    def printed(colours: Literal["truecolor"] | None) -> str:
        file = io.StringIO()
        console = Console(file=file, force_terminal=colours is not None, width=100, color_system=colours)
        console.print(draw_terminal(zeropp(), width=100))
        return file.getvalue()

    assert printed(None) == draw_terminal(zeropp(), width=100).plain + "\n"
    assert "48;2;74;144;217m" in printed("truecolor")


def test_wide_terminals_keep_equal_slots_equal() -> None:
    rows = draw_terminal(zeropp(), width=150).plain.splitlines()[1:5]
    for row in rows:
        cells = row.split(" ", 3)[-1].strip()
        assert len(cells) == 27 * (135 // 27)
    assert Tally(rows[0][15:])["F"] == 8 * 5


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert draw_terminal(zeropp()).plain == draw_terminal(zeropp(), width=60).plain


def test_large_timelines_are_drawn_too() -> None:
    text = draw_terminal(large(num_ranks=4, spans_of_each=3000), width=100).plain
    assert "showing what takes most of it" in text


def test_no_name_can_drive_the_terminal() -> None:
    evil = "\x1b[2J\r\a\x9b\ud800"
    track = Track(evil, evil)
    text = draw_terminal(Timeline(evil, "measured", (Span(track, evil, 0, 5, evil),)), width=60).plain
    assert all(one.isprintable() for line in text.split("\n") for one in line)
    assert "\ufffd[2J" in text
