"""The strict unit parser: what it reads, what it refuses, and that what it writes reads back."""

import json
import math
import sys
from fractions import Fraction
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk import units
from dtk.errors import InputError

FLOATS = st.floats(min_value=0, max_value=sys.float_info.max, allow_nan=False, allow_infinity=False)
FLOAT_KINDS = [
    units.BYTES_PER_SECOND,
    units.FLOP,
    units.FLOP_PER_SECOND,
    units.HERTZ,
    units.SECONDS,
    units.TRANSFERS_PER_SECOND,
]

GOOD: list[tuple[units.Kind[Any], str, float]] = [
    (units.BYTES, "0B", 0),
    (units.BYTES, "512B", 512),
    (units.BYTES, "80GiB", 80 * 2**30),
    (units.BYTES, "80 GiB", 80 * 2**30),
    (units.BYTES, " 80GiB ", 80 * 2**30),
    (units.BYTES, "80GB", 80 * 10**9),
    (units.BYTES, "1kB", 1000),
    (units.BYTES, "1KB", 1000),
    (units.BYTES, "1KiB", 1024),
    (units.BYTES, "1kiB", 1024),
    (units.BYTES, "1.5MiB", 3 * 2**19),
    (units.BYTES, ".5kB", 500),
    (units.BYTES, "1e3B", 1000),
    (units.BYTES, "2E3B", 2000),
    (units.BYTES, "1EB", 10**18),
    (units.BYTES, "16bit", 2),
    (units.BYTES, "400Gbit", 50 * 10**9),
    (units.BYTES, "3PiB", 3 * 2**50),
    (units.BYTES_PER_SECOND, "25GB/s", 25e9),
    (units.BYTES_PER_SECOND, "25GBps", 25e9),
    (units.BYTES_PER_SECOND, "400Gb/s", 50e9),
    (units.BYTES_PER_SECOND, "400Gbit/s", 50e9),
    (units.BYTES_PER_SECOND, "400Gbps", 50e9),
    (units.BYTES_PER_SECOND, "400gb/s", 50e9),
    (units.BYTES_PER_SECOND, "1GiB/s", 2.0**30),
    (units.FLOP, "1e24FLOP", 1e24),
    (units.FLOP, "2.5 PFLOP", 2.5e15),
    (units.FLOP_PER_SECOND, "312TFLOP/s", 312e12),
    (units.FLOP_PER_SECOND, "312 TFLOPS", 312e12),
    (units.FLOP_PER_SECOND, "1PFLOP/S", 1e15),
    (units.HERTZ, "1.41GHz", 1.41e9),
    (units.TRANSFERS_PER_SECOND, "32GT/s", 32e9),
    (units.TRANSFERS_PER_SECOND, "32TT/s", 32e12),
    (units.SECONDS, "60s", 60),
    (units.SECONDS, "3 ms", 0.003),
    (units.SECONDS, "250us", 250e-6),
    (units.SECONDS, "250µs", 250e-6),
    (units.SECONDS, "7ns", 7e-9),
    (units.SECONDS, "90min", 5400),
    (units.SECONDS, "1.5h", 5400),
]

BAD: list[tuple[units.Kind[Any], str]] = [
    (units.BYTES, ""),
    (units.BYTES, "B"),
    (units.BYTES, "GiB"),
    (units.BYTES, "80"),
    (units.BYTES, "80G"),
    (units.BYTES, "80Gi"),
    (units.BYTES, "80GiB junk"),
    (units.BYTES, "80GiB 2"),
    (units.BYTES, "80  GiB"),
    (units.BYTES, "80\nGiB"),
    (units.BYTES, "-1B"),
    (units.BYTES, "+1B"),
    (units.BYTES, "1,000B"),
    (units.BYTES, "1_000B"),
    (units.BYTES, "1.2.3B"),
    (units.BYTES, "0x10B"),
    (units.BYTES, "nanB"),
    (units.BYTES, "infB"),
    (units.BYTES, "٣B"),
    (units.BYTES, "1.5B"),
    (units.BYTES, "12bit"),
    (units.BYTES, "400Gb"),
    (units.BYTES, "80gb"),
    (units.BYTES, "80gib"),
    (units.BYTES, "80GB/s"),
    (units.BYTES, "1e9999B"),
    (units.BYTES_PER_SECOND, "25GB"),
    (units.BYTES_PER_SECOND, "400Gb"),
    (units.BYTES_PER_SECOND, "25G"),
    (units.BYTES_PER_SECOND, "25GB/h"),
    (units.BYTES_PER_SECOND, "1e400B/s"),
    (units.FLOP, "5TFLOPS"),
    (units.FLOP, "5TFLOP/s"),
    (units.FLOP, "5KiFLOP"),
    (units.FLOP_PER_SECOND, "5TFLOP"),
    (units.HERTZ, "1.41G"),
    (units.TRANSFERS_PER_SECOND, "32GB/s"),
    (units.SECONDS, "5"),
    (units.SECONDS, "5m"),
    (units.SECONDS, "5Ms"),
    (units.SECONDS, "5ks"),
    (units.SECONDS, "1h30min"),
]


@pytest.mark.parametrize(("kind", "text", "expected"), GOOD)
def test_good_texts(kind: units.Kind[Any], text: str, expected: float) -> None:
    figure = kind.parse(text)
    assert figure == expected
    assert type(figure) is kind.type


@pytest.mark.parametrize(("kind", "text"), BAD)
def test_bad_texts(kind: units.Kind[Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        kind.parse(text)
    assert caught.value.value == text
    assert (
        caught.value.hint
        or "not a whole number" in caught.value.message
        or "too large" in caught.value.message
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, -0.5, True, None, [1], b"1B"])
def test_bad_values(value: Any) -> None:
    with pytest.raises(InputError):
        units.SECONDS.parse(value)


def test_a_python_number_counts_in_base_units() -> None:
    assert units.BYTES.parse(4096) == 4096
    assert units.BYTES.parse(4096.0) == 4096
    assert units.SECONDS.parse(0.25) == 0.25
    with pytest.raises(InputError, match="not a whole number of bytes"):
        units.BYTES.parse(0.5)


@pytest.mark.parametrize(
    ("kind", "text", "readings"),
    [
        (units.BYTES, "400Gb", ("400GB for bytes", "400Gbit for bits")),
        (units.BYTES, "1.6kb", ("1.6kB for bytes", "1.6kbit for bits")),
        (units.FLOP, "5TFLOPS", ("5TFLOP for a count", "5TFLOP/s for a rate")),
        (units.SECONDS, "5m", ("5min for minutes", "5ms for milliseconds")),
        (units.SECONDS, "5Ms", ("5ms for milliseconds", "5e6s for megaseconds")),
    ],
)
def test_an_ambiguous_text_names_both_readings_and_both_parse(
    kind: units.Kind[Any], text: str, readings: tuple[str, str]
) -> None:
    with pytest.raises(InputError, match="two ways") as caught:
        kind.parse(text)
    for reading in readings:
        assert caught.value.hint is not None
        assert reading in caught.value.hint
        clear = reading.split(" ")[0]
        accepted = [other for other in (kind, units.FLOP_PER_SECOND) if _reads(other, clear)]
        assert accepted, f"the advice {clear!r} is itself refused"


def _reads(kind: units.Kind[Any], text: str) -> bool:
    try:
        kind.parse(text)
    except InputError:
        return False
    return True


@given(st.integers(0, 10**6), st.sampled_from(["", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"]))
def test_bits_and_bytes_differ_by_eight(number: int, prefix: str) -> None:
    in_bytes = units.BYTES_PER_SECOND.parse(f"{number}{prefix}B/s")
    in_bits = units.BYTES_PER_SECOND.parse(f"{8 * number}{prefix}b/s")
    assert in_bits == in_bytes


@given(st.integers(0, 2**80))
def test_bytes_round_trip(number: int) -> None:
    assert units.BYTES.parse(units.BYTES.format(number)) == number


@given(st.sampled_from(FLOAT_KINDS), FLOATS)
def test_floats_round_trip(kind: units.Kind[float], number: float) -> None:
    assert kind.parse(kind.format(number)) == number


@given(st.sampled_from(FLOAT_KINDS), FLOATS)
def test_trailing_text_is_refused(kind: units.Kind[float], number: float) -> None:
    for junk in (" junk", ";", "2", " 2"):
        assert not _reads(kind, kind.format(number) + junk)


@given(st.decimals(0, 10**6, places=3), st.sampled_from([("k", 10**3), ("M", 10**6), ("Gi", 2**30)]))
def test_against_exact_arithmetic(number: Any, prefix: tuple[str, int]) -> None:
    expected = Fraction(number) * prefix[1]
    assert units.BYTES_PER_SECOND.parse(f"{number}{prefix[0]}B/s") == float(expected)


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (units.BYTES, 0, "0B"),
        (units.BYTES, 80 * 2**30, "80GiB"),
        (units.BYTES, 80 * 10**9, "80GB"),
        (units.BYTES, 1025, "1025B"),
        (units.BYTES_PER_SECOND, 50e9, "50GB/s"),
        (units.FLOP_PER_SECOND, 312e12, "312TFLOP/s"),
        (units.SECONDS, 0.003, "3ms"),
        (units.SECONDS, 90.0, "90s"),
        (units.HERTZ, 1.41e9, "1.41GHz"),
    ],
)
def test_canonical_texts(kind: units.Kind[Any], number: float, text: str) -> None:
    assert kind.format(number) == text


class _Chip(pydantic.BaseModel, extra="forbid", frozen=True):
    memory: units.Bytes
    link: units.BytesPerSecond = 0.0
    timeout: units.Seconds = 60.0


def test_pydantic_fields_read_texts_and_write_canonical_json() -> None:
    chip = _Chip.model_validate({"memory": "81920MiB", "link": "400Gb/s"})
    assert (chip.memory, chip.link, chip.timeout) == (80 * 2**30, 50e9, 60.0)
    assert json.loads(chip.model_dump_json()) == {"memory": "80GiB", "link": "50GB/s", "timeout": "60s"}
    assert chip.model_dump()["memory"] == 80 * 2**30
    assert _Chip.model_validate_json(chip.model_dump_json()) == chip


def test_json_schema_says_what_the_text_looks_like() -> None:
    schema = _Chip.model_json_schema()["properties"]["memory"]
    assert "80GiB" in schema["description"]
    assert {"type": "string"} in schema["anyOf"]
