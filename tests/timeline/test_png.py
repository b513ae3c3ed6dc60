"""The PNG has the rows and labels that it should; pixels are looked at for colour only."""

import io

import matplotlib.image
import numpy as np
import pytest

from dtk.timeline import Counter, Span, Timeline, Track
from dtk.timeline.palette import looks
from dtk.timeline.png import draw_png
from tests.timeline.samples import large, zeropp


def pixels(timeline: Timeline) -> np.ndarray:
    content, _ = draw_png(timeline)
    return np.asarray(np.round(matplotlib.image.imread(io.BytesIO(content))[..., :3] * 255), dtype=int)


def share(picture: np.ndarray, colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return float((np.abs(picture - channels).max(-1) <= 2).mean())


def test_categories_fill_areas_as_large_as_their_time() -> None:
    picture = pixels(zeropp())
    found = [share(picture, look.colour) for look in looks("FBW").values()]
    assert min(found) > 0.01
    # The example has as many F as B and W; the legend and the counter's line add a little.
    assert found[1] == pytest.approx(found[2], rel=0.15)
    assert found[0] == pytest.approx(found[2], rel=0.25)


def test_the_same_timeline_gives_the_same_bytes() -> None:
    assert draw_png(zeropp()) == draw_png(zeropp())


def test_large_timelines_are_thinned_and_told() -> None:
    content, (note,) = draw_png(large(num_ranks=8, spans_of_each=1000))
    assert len(content) < 1_000_000
    assert note.startswith("all rows show shares of time")


def test_names_that_matplotlib_would_take_for_something_else() -> None:
    track = Track("_rank$", "a$b$c_{d}")
    timeline = Timeline(
        "$\\frac$", "measured", (Span(track, "x", 0, 5, "_c"),), (Counter("_rank$", "_$n$", ()),)
    )
    assert draw_png(timeline)[0].startswith(b"\x89PNG")


def test_an_empty_timeline_is_a_picture_too() -> None:
    assert draw_png(Timeline("nothing", "simulated", ()))[0].startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["\0", "\x1b[31m", "\ud800", "a\r\nb"])
def test_names_that_no_font_has(name: str) -> None:
    spans = (Span(Track(name, name), name, 0, 5, name),)
    timeline = Timeline(name, "measured", spans, (Counter(name, name, ((0, 1),), name),))
    assert draw_png(timeline)[0].startswith(b"\x89PNG")


def test_a_unit_is_no_formula() -> None:
    counter = Counter("rank 0", "cost", ((0, 1), (5, 2)), "$\\nonsense$")
    assert draw_png(Timeline("money", "measured", (), (counter,)))[0].startswith(b"\x89PNG")
