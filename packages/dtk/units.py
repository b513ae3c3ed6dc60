"""Strict reading and writing of figures with units: `80GiB`, `400Gb/s`, `312TFLOP/s`, `60s`.

The grammar is a number, an optional space, and a unit with an optional prefix: k M G T P E for powers of
1000, and for bytes and bits also Ki Mi Gi Ti Pi for powers of 1024. The whole text must match. Case matters
for b (bits) against B (bytes). What engineers read in two ways is refused, and the error names both readings.
A text without a unit is refused too, while a Python number (from code, or from a configuration key whose name
carries the unit) counts in base units.

It leaves out negative figures and compound units; formulas use plain numbers whose names end in the unit.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from dtk.errors import InputError

__all__ = [
    "BYTES",
    "BYTES_PER_SECOND",
    "FLOP",
    "FLOP_PER_SECOND",
    "HERTZ",
    "SECONDS",
    "TRANSFERS_PER_SECOND",
    "Bytes",
    "BytesPerSecond",
    "Flop",
    "FlopPerSecond",
    "Hertz",
    "Kind",
    "Seconds",
    "TransfersPerSecond",
]

NumberT = TypeVar("NumberT", int, float)
ValueT = TypeVar("ValueT")

# Three digits of exponent reach past any float, and keep exact arithmetic on the number cheap.
_FIGURE = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?) ?(\D.*)?", re.ASCII)
_DECIMAL: Final = {prefix: Fraction(1000) ** power for power, prefix in enumerate(["", *"kMGTPE"])}
_BINARY: Final = {f"{prefix}i": Fraction(1024) ** power for power, prefix in enumerate("KMGTP", start=1)}


@dataclass(frozen=True, slots=True)
class Kind(Generic[NumberT]):
    """One kind of figure: how its texts read and how its canonical text is written.

    Attributes:
        name: What the figure counts, in the plural, for messages.
        type: `int` for counts that must be whole, else `float`.
        example: A good text or two, for hints.
        unit: The base unit.
        written: Suffixes that `format` chooses from, with the base units in one of each.
        read: The suffixes that `parse` accepts, with the base units in one of each.
        refused: Suffixes that can be meant in two ways, with the two clear ways to write them.
    """

    name: str
    type: type[NumberT]
    example: str
    unit: str
    written: Mapping[str, Fraction]
    read: Mapping[str, Fraction]
    refused: Mapping[str, tuple[str, str]]

    def parse(self, value: str | float) -> NumberT:
        """Return the figure in base units; a Python number already counts in them.

        Raises:
            InputError: If the text does not match the grammar, is ambiguous, or is no figure of this kind.
        """
        if isinstance(value, str):
            return self._number(self._exact(value), value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"must be a number of {self.name}", value=value, hint=self._hint())
        if value != value or abs(value) == math.inf:
            raise InputError("must be finite", value=value, hint=self._hint())
        return self._number(Fraction(value), value)

    def format(self, value: NumberT) -> str:
        """Return the canonical text: the shortest that keeps every digit, `parse(format(x)) == x`.

        Raises:
            InputError: If the number is negative, not finite, or not whole where it must be.
        """
        number = self.parse(value)
        # repr is the shortest decimal text that reads back as the same float, and it is exact for an int.
        digits = repr(number).removesuffix(".0")
        exact = Fraction(digits)
        texts = [f"{digits}{self.unit}"]
        texts += [
            f"{_decimal(exact / scale)}{suffix}" for suffix, scale in self.written.items() if exact >= scale
        ]
        return min(reversed(texts), key=len)

    def _exact(self, text: str) -> Fraction:
        match = _FIGURE.fullmatch(text.strip())
        if match is None:
            raise InputError(f"must be a number of {self.name} with its unit", value=text, hint=self._hint())
        number, suffix = match.groups()
        if suffix is None:
            raise InputError("needs a unit", value=text, hint=self._hint())
        readings = _lookup(self.refused, suffix)
        if readings is not None:
            hint = f"write {number}{readings[0]} or {number}{readings[1]}"
            raise InputError(f"{suffix!r} can be meant in two ways", value=text, hint=hint)
        scale = _lookup(self.read, suffix)
        if scale is None:
            raise InputError(f"{suffix!r} is no unit of {self.name}", value=text, hint=self._hint())
        return Fraction(number) * scale

    def _number(self, exact: Fraction, value: object) -> NumberT:
        if exact < 0:
            raise InputError("must not be negative", value=value)
        try:
            number = self.type(exact)
        except OverflowError:
            raise InputError("is too large", value=value) from None
        if self.type is int and number != exact:
            raise InputError(f"is not a whole number of {self.name}", value=value)
        return number

    def _hint(self) -> str:
        return f"for example {self.example}"


def _decimal(exact: Fraction) -> str:
    """Write a fraction of powers of 2 and 5 as a decimal with all its digits."""
    whole, rest = divmod(exact, 1)
    digits = ""
    while rest:
        digit, rest = divmod(rest * 10, 1)
        digits += str(digit)
    return f"{whole}.{digits}" if digits else str(whole)


def _fold(suffix: str) -> str:
    """Lower the case of everything but b and B, which mean bits and bytes."""
    return "".join(letter if letter == "B" else letter.lower() for letter in suffix)


def _lookup(table: Mapping[str, ValueT], suffix: str) -> ValueT | None:
    return table.get(suffix, table.get(_fold(suffix)))


def _prefixed(
    name: str,
    number_type: type[NumberT],
    units: Mapping[str, Fraction],
    *,
    example: str,
    refused: Mapping[str, tuple[str, str]] | None = None,
) -> Kind[NumberT]:
    """Build a kind whose units take prefixes (binary ones too for bytes); the first unit is the base."""
    base = next(iter(units))
    prefixes = _DECIMAL | (_BINARY if base.startswith("B") else {})
    return Kind(
        name=name,
        type=number_type,
        example=example,
        unit=base,
        written={prefix + base: scale for prefix, scale in prefixes.items()},
        read={_fold(p + unit): scale * one for p, scale in prefixes.items() for unit, one in units.items()},
        refused={
            _fold(prefix + unit): (f"{prefix}{first}", f"{prefix}{second}")
            for prefix in prefixes
            for unit, (first, second) in (refused or {}).items()
        },
    )


_ONE = Fraction(1)
_BIT = Fraction(1, 8)
_SECOND = {"s": _ONE, "ms": _ONE / 10**3, "us": _ONE / 10**6, "ns": _ONE / 10**9}

BYTES: Final = _prefixed(
    "bytes",
    int,
    {"B": _ONE, "bit": _BIT},
    example="80GiB or 512MB",
    refused={"b": ("B for bytes", "bit for bits")},
)
BYTES_PER_SECOND: Final = _prefixed(
    "bytes per second",
    float,
    {"B/s": _ONE, "Bps": _ONE, "b/s": _BIT, "bit/s": _BIT, "bps": _BIT},
    example="25GB/s, or 400Gb/s in bits",
)
FLOP: Final = _prefixed(
    "floating-point operations",
    float,
    {"FLOP": _ONE},
    example="2.5PFLOP",
    refused={"FLOPS": ("FLOP for a count", "FLOP/s for a rate")},
)
FLOP_PER_SECOND: Final = _prefixed(
    "floating-point operations per second", float, {"FLOP/s": _ONE, "FLOPS": _ONE}, example="312TFLOP/s"
)
HERTZ: Final = _prefixed("hertz", float, {"Hz": _ONE}, example="1.41GHz")
TRANSFERS_PER_SECOND: Final = _prefixed("transfers per second", float, {"T/s": _ONE}, example="32GT/s")
SECONDS: Final = Kind(
    name="seconds",
    type=float,
    example="60s, 90min or 250us",
    unit="s",
    written=_SECOND,
    read=_SECOND | {"µs": _SECOND["us"], "min": Fraction(60), "h": Fraction(3600)},
    refused={
        "m": ("min for minutes", "ms for milliseconds"),
        "M": ("min for minutes", "ms for milliseconds"),
        "Ms": ("ms for milliseconds", "e6s for megaseconds"),
        "MS": ("ms for milliseconds", "e6s for megaseconds"),
    },
)


def _annotations(kind: Kind[Any]) -> tuple[BeforeValidator, PlainSerializer, WithJsonSchema]:
    number = {"type": "integer" if kind.type is int else "number", "minimum": 0}
    schema = {
        "anyOf": [number, {"type": "string"}],
        "description": f"{kind.name[0].upper()}{kind.name[1:]}, for example {kind.example}.",
    }
    serializer = PlainSerializer(kind.format, return_type=str, when_used="json")
    return BeforeValidator(kind.parse), serializer, WithJsonSchema(schema)


Bytes = Annotated[int, *_annotations(BYTES)]
"""A number of bytes in a pydantic model; JSON gets the canonical text, such as `80GiB`."""
BytesPerSecond = Annotated[float, *_annotations(BYTES_PER_SECOND)]
"""A rate in bytes per second; texts in bits per second are converted."""
Flop = Annotated[float, *_annotations(FLOP)]
"""A number of floating-point operations."""
FlopPerSecond = Annotated[float, *_annotations(FLOP_PER_SECOND)]
"""A rate in floating-point operations per second."""
Seconds = Annotated[float, *_annotations(SECONDS)]
"""A duration in seconds."""
Hertz = Annotated[float, *_annotations(HERTZ)]
"""A frequency in hertz."""
TransfersPerSecond = Annotated[float, *_annotations(TRANSFERS_PER_SECOND)]
"""Transfers per second of a bus or memory; bytes follow from its width."""
