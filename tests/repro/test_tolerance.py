"""Tolerance classes against exact rational arithmetic; NaN never passes."""

import math
from fractions import Fraction

import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dtk.repro.tolerance import (
    NUMERIC_TOLERANCES,
    Analytic,
    Exact,
    Numeric,
    Ratio,
    Statistical,
    Tolerance,
    format_band,
    judge,
)

finite = st.floats(allow_nan=False, allow_infinity=False, width=64).filter(lambda x: abs(x) < 1e300)
dtypes = st.sampled_from(["fp64", "fp32", "fp16", "bf16"])
scopes = st.sampled_from(["operation", "model"])


@st.composite
def tolerances(draw: st.DrawFn) -> Tolerance:
    low, width = draw(st.floats(0.1, 10)), draw(st.floats(0, 10))
    return draw(
        st.sampled_from(
            [
                Exact(),
                Analytic(),
                Numeric(dtype=draw(dtypes), scope=draw(scopes)),
                Statistical(low=low, high=low + width),
                Statistical(low=low),
                Statistical(high=low),
                Ratio(low=low),
                Ratio(low=low, high=low + width),
            ]
        )
    )


@given(tolerances(), finite)
def test_nan_never_passes(tolerance: Tolerance, expected: float) -> None:
    verdict = judge(expected, tolerance, math.nan)
    assert not verdict.passed
    assert verdict.reason
    assert not judge({"a": expected, "b": expected}, tolerance, {"a": expected, "b": math.nan}).passed


@given(tolerances(), finite, st.sampled_from([math.inf, -math.inf]))
def test_infinity_passes_only_an_open_end(tolerance: Tolerance, expected: float, infinity: float) -> None:
    band = tolerance.band("", expected)
    assert band is not None
    open_end = band.high if infinity > 0 else band.low
    assert judge(expected, tolerance, infinity).passed == (open_end is None)


@given(
    st.integers() | st.booleans() | st.text(max_size=5), st.integers() | st.booleans() | st.text(max_size=5)
)
def test_exact_is_equality_of_value_and_kind(expected: int | str, observed: int | str) -> None:
    same_kind = isinstance(expected, bool) == isinstance(observed, bool)
    assert judge(expected, Exact(), observed).passed == (same_kind and expected == observed)
    assert judge(expected, Exact(), expected).passed


def test_exact_tells_neighbouring_integers_apart_beyond_53_bits() -> None:
    assert not judge(2**60, Exact(), 2**60 + 1).passed


@given(finite, st.floats(-3e-9, 3e-9))
def test_analytic_is_one_part_in_a_billion(expected: float, relative: float) -> None:
    observed = expected * (1 + relative)
    difference = abs(Fraction(observed) - Fraction(expected))
    limit = abs(Fraction(expected)) / 10**9
    # Rounding may decide within a millionth of the limit, and among denormals.
    assume(abs(expected) > 1e-290 and abs(difference - limit) > limit / 10**6)
    assert judge(expected, Analytic(), observed).passed == (difference <= limit)


def test_analytic_zero_must_be_met_exactly() -> None:
    assert judge(0.0, Analytic(), 0).passed
    assert not judge(0.0, Analytic(), 1e-300).passed


@given(finite, st.floats(-4, 4), dtypes, scopes)
def test_numeric_scales_with_values_above_one(expected: float, factor: float, dtype: str, scope: str) -> None:
    allowed = NUMERIC_TOLERANCES[scope, dtype] * max(1.0, abs(expected))
    observed = expected + factor * allowed
    assume(abs(abs(factor) - 1) > 1e-3)
    difference = abs(Fraction(observed) - Fraction(expected))
    assume(abs(difference / Fraction(allowed) - 1) > Fraction(1, 1000))
    tolerance = Numeric.model_validate({"dtype": dtype, "scope": scope})
    assert judge(expected, tolerance, observed).passed == (difference <= Fraction(allowed))


@given(finite, finite, finite)
def test_statistical_band_includes_its_ends(a: float, b: float, observed: float) -> None:
    low, high = min(a, b), max(a, b)
    tolerance = Statistical(low=low, high=high)
    assert judge(low, tolerance, observed).passed == (sorted([low, observed, high])[1] == observed)
    assert judge(low, tolerance, low).passed
    assert judge(low, tolerance, high).passed
    assert judge(low, Statistical(low=low), math.nextafter(low, -math.inf)).passed is False
    assert judge(high, Statistical(high=high), math.nextafter(high, math.inf)).passed is False


def test_each_figure_has_its_own_band() -> None:
    tolerance = Statistical(low={"a": 0, "b": 10}, high={"a": 1, "b": 11})
    assert judge({"a": 0.5, "b": 10.5}, tolerance, {"a": 0, "b": 11}).passed
    verdict = judge({"a": 0.5, "b": 10.5}, tolerance, {"a": 10.5, "b": 0.5})
    assert verdict.reason == (
        "a: observed 10.5 is above the band, which ends at 1; "
        "b: observed 0.5 is below the band, which starts at 10"
    )


@pytest.mark.parametrize("observed", [1, {"a": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "x": 1}])
def test_other_figures_than_expected_fail(observed: int | dict[str, int]) -> None:
    assert not judge({"a": 1, "b": 1}, Statistical(low=0), observed).passed


@pytest.mark.parametrize("observed", ["1", True])
def test_a_band_wants_numbers(observed: str | bool) -> None:
    assert not judge(1, Statistical(low=0, high=2), observed).passed


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "ratio"},
        {"kind": "ratio", "low": 0},
        {"kind": "ratio", "low": math.nan},
        {"kind": "statistical"},
        {"kind": "numeric"},
        {"kind": "numeric", "dtype": "fp8"},
        {"kind": "numeric", "dtype": "fp32", "rtol": 1},
        {"kind": "exact", "low": 1},
        {"kind": "loose"},
    ],
)
def test_nonsense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(pydantic.ValidationError):
        pydantic.TypeAdapter(Tolerance).validate_python(fields)


def test_tolerances_grow_with_coarser_formats_and_with_depth() -> None:
    for scope in ("operation", "model"):
        row = [NUMERIC_TOLERANCES[scope, dtype] for dtype in ("fp64", "fp32", "fp16", "bf16")]
        assert row == sorted(row)
    assert all(
        NUMERIC_TOLERANCES["model", dtype] > NUMERIC_TOLERANCES["operation", dtype]
        for dtype in ("fp64", "fp32", "fp16", "bf16")
    )


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [
        (Exact(), "equal"),
        (Analytic(), "±1e-9 relative"),
        (Numeric(dtype="fp32"), "±2.0e-05"),
        (Statistical(low=0.9), "at least 0.9"),
        (Statistical(high=3), "at most 3"),
        (Ratio(low=1.5, high=4), "1.5 to 4"),
    ],
)
def test_bands_in_words(tolerance: Tolerance, text: str) -> None:
    assert format_band(tolerance.band("", 2.0), tolerance.kind) == text
