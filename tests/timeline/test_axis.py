"""Ticks are round and few; times and amounts read as people write them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.timeline.axis import format_amount, format_time, format_times, ticks


@given(st.integers(0, 2**60), st.integers(1, 30))
def test_ticks_are_evenly_spaced_round_and_no_more_than_asked_for(end_ns: int, at_most: int) -> None:
    found = ticks(end_ns, at_most)
    step = found[1].time_ns if len(found) > 1 else 1
    assert [tick.time_ns for tick in found] == list(range(0, found[-1].time_ns + 1, step))
    assert str(step).rstrip("0") in ("1", "2", "5")
    assert 1 <= len(found) <= at_most + 1
    assert found[-1].time_ns <= end_ns
    units = {"s": 10**9, "ms": 10**6, "µs": 1000, "ns": 1}
    for tick in found:
        number, unit = tick.label.split()
        assert Fraction(number) * units[unit] == tick.time_ns
    assert len({tick.label.split()[1] for tick in found}) == 1


@given(st.integers(30, 2**60), st.integers(2, 30))
def test_there_are_ticks_enough(end_ns: int, at_most: int) -> None:
    assert len(ticks(end_ns, at_most)) >= at_most / 2.5


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1000, "1 µs"),
        (1234, "1.23 µs"),
        (12_345_678, "12.3 ms"),
        (100_000_000_000, "100 s"),
        (1_234_567_000_000_000, "1234567 s"),
        (Fraction(1000, 3), "333 ns"),
        (Fraction(1, 3), "0.33 ns"),
    ],
)
def test_times(time: int | Fraction, text: str) -> None:
    assert format_time(time) == text


def test_times_of_a_column_share_the_unit_of_the_shortest() -> None:
    assert format_times([1_075_200_000, 0, 985_600_000]) == ["1075 ms", "0 ms", "986 ms"]
    assert format_times([2_000_000_000, 3_500_000_000]) == ["2 s", "3.5 s"]
    assert format_times([]) == []
    assert format_times([0]) == ["0 ns"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bytes", "0 bytes"),
        (1023, "bytes", "1023 bytes"),
        (1536, "bytes", "1.5 KiB"),
        (80 * 2**30, "bytes", "80 GiB"),
        (5000 * 2**50, "bytes", "5000 PiB"),
        (2.5, "GB/s", "2.5 GB/s"),
        (7, "", "7"),
    ],
)
def test_amounts(value: float, unit: str, text: str) -> None:
    assert format_amount(value, unit) == text
