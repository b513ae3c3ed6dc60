"""Looks of categories: one letter and one colour each, readable, and the same in every timeline."""

from hypothesis import given
from hypothesis import strategies as st

from dtk.timeline.palette import looks


def contrast(one: str, other: str) -> float:
    """Return WCAG's ratio of two colours."""

    def luminance(colour: str) -> float:
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@given(st.lists(st.text(), max_size=70, unique=True))
def test_letters_are_single_printable_and_different_while_they_last(categories: list[str]) -> None:
    found = looks(categories)
    assert list(found) == categories
    letters = [look.letter for look in found.values()]
    assert all(len(letter) == 1 and letter.isprintable() and letter not in ".: " for letter in letters)
    assert len(set(letters[:60])) == len(letters[:60])


def test_letters_come_from_the_names() -> None:
    names = ["F", "B", "I", "W", "F+B", "transfer", "gather", "reduction"]
    assert "".join(look.letter for look in looks(names).values()) == "FBIW+TGR"


def test_names_are_readable_on_their_colours_and_colours_stand_out_from_the_paper() -> None:
    found = list(looks(map(str, range(10))).values())
    assert len({look.colour for look in found}) == 10
    for look in found:
        assert contrast(look.colour, look.ink) >= 4.5
        assert contrast(look.colour, "#ffffff") >= 1.8
        assert contrast(look.colour, "#16181d") >= 3


def test_colours_depend_on_the_place_alone() -> None:
    assert looks(["a", "b"])["b"].colour == looks(["x", "y", "z"])["y"].colour
