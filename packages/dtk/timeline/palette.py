"""Colours and letters of categories: the n-th category looks the same everywhere.

The first colours follow Okabe and Ito's set for colour-blind readers, in tones that stand out on white and on
black; further categories take them again, paler.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

__all__ = ["Look", "looks"]


class Look(NamedTuple):
    """How a category is shown.

    Attributes:
        colour: `#rrggbb`, of its spans.
        ink: `#rrggbb`, readable on that colour.
        letter: One character, its own.
    """

    colour: str
    ink: str
    letter: str


_COLOURS: Final = (
    "#4a90d9",
    "#e08a1e",
    "#d9653b",
    "#2fa37c",
    "#b765a8",
    "#c9b02f",
    "#5fb8d9",
    "#8d7b68",
    "#8a8f98",
    "#6f6fc4",
)
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_RESERVED: Final = ".: "  # idle time, and nothing


def looks(categories: Iterable[str]) -> Mapping[str, Look]:
    """Return the looks of categories, given in the order in which they take their colours."""
    found: dict[str, Look] = {}
    taken = set(_RESERVED)
    for index, category in enumerate(categories):
        colour = _COLOURS[index % len(_COLOURS)]
        for _ in range(index // len(_COLOURS)):
            colour = _paler(colour)
        letter = _letter(category, taken)
        taken.add(letter)
        found[category] = Look(colour, _ink(colour), letter)
    return found


def _letter(category: str, taken: set[str]) -> str:
    """Choose the first printable character of the name that is free, then any that is."""
    own = [shape for character in category if character.isascii() for shape in (character.upper(), character)]
    candidates = [*own, *_LETTERS]
    return next((one for one in candidates if one.isprintable() and one not in taken), "?")


def _paler(colour: str) -> str:
    return _hexadecimal((channel + 255) // 2 for channel in _channels(colour))


def _ink(colour: str) -> str:
    """Return black or white, whichever has more contrast by WCAG's relative luminance."""
    weights = (0.2126, 0.7152, 0.0722)
    luminance = sum(weight * _linear(value) for weight, value in zip(weights, _channels(colour), strict=True))
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def _linear(channel: int) -> float:
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _hexadecimal(channels: Iterable[int]) -> str:
    return "#" + "".join(f"{channel:02x}" for channel in channels)
