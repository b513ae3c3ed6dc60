"""How an observed value is judged: five tolerance classes, each turning an expected value into a band.

`exact` for counts, bytes and schedules; `analytic` for formulas; `numeric` for arithmetic in a number
format; `statistical` for results that depend on seeds and data; `ratio` for speed-ups. Absolute times are
never judged: they say more about the machine than about the claim. NaN lies in no band.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple

import pydantic

from dtk.repro.values import Model, Scalar, Value, by_name, format_scalar

__all__ = [
    "ANALYTIC_RELATIVE_TOLERANCE",
    "NUMERIC_TOLERANCES",
    "Analytic",
    "Band",
    "Exact",
    "Numeric",
    "Ratio",
    "Statistical",
    "Tolerance",
    "Verdict",
    "format_band",
    "judge",
]

ANALYTIC_RELATIVE_TOLERANCE: Final = 1e-9

NUMERIC_TOLERANCES: Final[Mapping[tuple[str, str], float]] = MappingProxyType(
    {
        ("operation", "fp64"): 1e-12,
        ("operation", "fp32"): 1e-5,
        ("operation", "fp16"): 2e-3,
        ("operation", "bf16"): 2e-2,
        ("model", "fp64"): 1e-10,
        ("model", "fp32"): 2e-3,
        ("model", "fp16"): 5e-2,
        ("model", "bf16"): 3e-1,
    }
)
"""Allowed difference by scope and number format, for values of size one; larger values scale it up.

`operation` is one kernel against a reference in higher precision, `model` the logits of a whole network,
where the differences of all layers add up.
"""


class Band(NamedTuple):
    """The values that pass, both ends included; None is an open end."""

    low: float | None
    high: float | None


class Exact(Model):
    """The very same value: a count, a size in bytes, a text, yes or no."""

    kind: Literal["exact"] = "exact"

    def band(self, name: str, expected: Scalar) -> Band | None:
        """Return the band around `expected`; None where only equality makes sense."""
        if isinstance(expected, (bool, str)):
            return None
        return Band(expected, expected)


class Analytic(Model):
    """A formula evaluated in fp64: 1e-9 relative, so an expected zero must be met exactly."""

    kind: Literal["analytic"] = "analytic"

    def band(self, name: str, expected: Scalar) -> Band:
        """Return the band around `expected`."""
        return _around(expected, ANALYTIC_RELATIVE_TOLERANCE * abs(_number(expected)))


class Numeric(Model):
    """Arithmetic in a number format, against the exact result; see `NUMERIC_TOLERANCES`."""

    kind: Literal["numeric"] = "numeric"
    dtype: Literal["fp64", "fp32", "fp16", "bf16"]
    scope: Literal["operation", "model"] = "operation"

    def band(self, name: str, expected: Scalar) -> Band:
        """Return the band around `expected`."""
        tolerance = NUMERIC_TOLERANCES[self.scope, self.dtype]
        return _around(expected, tolerance * max(1.0, abs(_number(expected))))


class Statistical(Model):
    """A result of seeds and data: the median over the seeds lies in a reference band (MLPerf's idea)."""

    kind: Literal["statistical"] = "statistical"
    low: float | dict[str, float] | None = None
    high: float | dict[str, float] | None = None

    @pydantic.model_validator(mode="after")
    def _has_an_end(self) -> "Statistical":
        if self.low is None and self.high is None:
            raise ValueError("a statistical band needs low, high or both")
        return self

    def band(self, name: str, expected: Scalar) -> Band:
        """Return the reference band of the figure `name`."""
        return Band(_end(self.low, name), _end(self.high, name))


class Ratio(Model):
    """A speed-up, or another quotient of two measurements of one run: at least `low`, at most `high`."""

    kind: Literal["ratio"] = "ratio"
    low: float = pydantic.Field(gt=0)
    high: float | None = None

    def band(self, name: str, expected: Scalar) -> Band:
        """Return the band, the same for each figure."""
        return Band(self.low, self.high)


Tolerance = Annotated[
    Exact | Analytic | Numeric | Statistical | Ratio,
    pydantic.Field(discriminator="kind"),
]


class Verdict(NamedTuple):
    """Whether the observed value holds, and what is off if it does not."""

    passed: bool
    reason: str | None


def judge(expected: Value, tolerance: Tolerance, observed: Value) -> Verdict:
    """Judge `observed`: every expected figure must be there and in its band, and nothing else may be."""
    wanted, got = by_name(expected), by_name(observed)
    if wanted.keys() != got.keys():
        return Verdict(False, f"the check gave {_names(got)} where the claim expects {_names(wanted)}")
    wrong = [
        f"{name + ': ' if name else ''}{problem}"
        for name, value in wanted.items()
        if (problem := _problem(value, tolerance.band(name, value), got[name])) is not None
    ]
    return Verdict(not wrong, "; ".join(wrong) or None)


def format_band(band: Band | None, kind: str) -> str:
    """Write a band for people: its tolerance class where the band is only rounding, else its ends."""
    if band is None or kind == "exact":
        return "equal"
    low, high = band
    if kind == "analytic":
        return "±1e-9 relative"
    if kind == "numeric" and low is not None and high is not None:
        return f"±{(high - low) / 2:.1e}"
    if low is None:
        return f"at most {format_scalar(high)}"
    if high is None:
        return f"at least {format_scalar(low)}"
    return f"{format_scalar(low)} to {format_scalar(high)}"


def _problem(expected: Scalar, band: Band | None, observed: Scalar) -> str | None:
    shown = f"observed {format_scalar(observed)}"
    if band is None or isinstance(observed, (bool, str)):
        same = type(observed) is type(expected) and observed == expected
        return None if same else f"{shown}, expected {format_scalar(expected)}"
    if isinstance(observed, float) and math.isnan(observed):
        return "observed is not a number"
    if band.low is not None and not observed >= band.low:
        return f"{shown} is below the band, which starts at {format_scalar(band.low)}"
    if band.high is not None and not observed <= band.high:
        return f"{shown} is above the band, which ends at {format_scalar(band.high)}"
    return None


def _around(expected: Scalar, margin: float) -> Band:
    return Band(_number(expected) - margin, _number(expected) + margin)


def _number(expected: Scalar) -> float:
    if isinstance(expected, (bool, str)):
        raise ValueError(f"{expected!r} is not a number: use the tolerance class exact")
    return expected


def _end(end: float | dict[str, float] | None, name: str) -> float | None:
    return end.get(name) if isinstance(end, dict) else end


def _names(figures: Mapping[str, Any]) -> str:
    return ", ".join(repr(name) for name in figures if name) or "one value"
