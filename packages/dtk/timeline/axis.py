"""Times and amounts as people read them: round ticks, one unit for a whole axis."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

__all__ = ["Tick", "format_amount", "format_time", "format_times", "ticks"]

_TIME_UNITS: Final = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))
_BYTE_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEPS: Final = (1, 2, 5, 10)


class Tick(NamedTuple):
    """A place on the time axis and what stands there."""

    time_ns: int
    label: str


def ticks(end_ns: int, at_most: int) -> list[Tick]:
    """Return round times from 0 to `end_ns`, all in one unit, `at_most` steps apart at most.

    The steps are 1, 2 or 5 times a power of ten of a nanosecond; the unit is the largest that is not larger
    than the end.
    """
    step = _step(end_ns, max(at_most, 1))
    scale, unit = _time_unit(end_ns)
    return [Tick(time, f"{_decimal(Fraction(time, scale))} {unit}") for time in range(0, end_ns + 1, step)]


def format_time(time_ns: int | Fraction) -> str:
    """Return a time with its unit, three significant digits at least and no zeros behind the point."""
    scale, unit = _time_unit(time_ns)
    return f"{_short(Fraction(time_ns) / scale)} {unit}"


def format_times(times_ns: Sequence[int]) -> list[str]:
    """Return times in one unit, that of the shortest, so that a column of them can be read at a glance."""
    scale, unit = _time_unit(min((time for time in times_ns if time), default=0))
    return [f"{_short(Fraction(time, scale))} {unit}" for time in times_ns]


def format_amount(value: float, unit: str) -> str:
    """Return a counter's value with its unit, bytes with binary prefixes."""
    if unit != "bytes":
        return f"{_short(Fraction(value))} {unit}".rstrip()
    power = 0
    amount = Fraction(value)
    while abs(amount) >= 1024 and power + 1 < len(_BYTE_UNITS):
        amount, power = amount / 1024, power + 1
    return f"{_short(amount)} {_BYTE_UNITS[power]}"


def _step(end_ns: int, at_most: int) -> int:
    power = 1
    while True:
        for factor in _STEPS[:-1]:
            if factor * power * at_most >= end_ns:
                return factor * power
        power *= 10


def _time_unit(time_ns: int | Fraction) -> tuple[int, str]:
    return next(((scale, unit) for scale, unit in _TIME_UNITS if time_ns >= scale), _TIME_UNITS[-1])


def _short(value: Fraction) -> str:
    digits = max(0, 3 - len(str(abs(int(value)))))
    text = f"{float(value):.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimal(value: Fraction) -> str:
    """Write a fraction whose denominator divides a power of ten, with all its digits."""
    text = f"{value.numerator * (10**9 // value.denominator):010d}"
    whole, rest = text[:-9], text[-9:].rstrip("0")
    return f"{whole}.{rest}" if rest else whole
