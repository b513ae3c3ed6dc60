"""Stochastic rounding: its threshold to the bit, its mean to a stated confidence, gfloat's view."""

import math
from fractions import Fraction

import gfloat
import numpy as np
import pytest
import torch

from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._rounding import codes_to_values, round_to_codes
from tests.kernels.implementations import DIRECT, EVERYWHERE
from tests.kernels.quant.oracles import FLOAT_FORMATS, magnitudes
from tests.kernels.quant.test_formats import GFLOAT
from tests.kernels.quant.test_rounding import codes_of


def random_bits(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (count,), generator=generator).to(torch.int32)


def values_between_codes(name: str) -> np.ndarray:
    """Four float32 values in each gap between neighbours, and the values themselves."""
    values = magnitudes(name)
    parts = np.array([0, 0.1, 1 / 3, 0.5, 0.999])
    return (values[:-1, None] + parts * np.diff(values)[:, None]).astype(np.float32).ravel()


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("name", FORMATS)
def test_the_threshold_to_the_bit(name: str, implementation: str) -> None:
    format = FORMATS[name]
    y = values_between_codes(name)
    y = y[y >= (format.smallest_normal or 1) / 2**6]  # below, the significand is shortened first
    mantissa, exponent = np.frexp(y.astype(np.float64))
    significand = (mantissa * 2**24).astype(np.int64)
    last_place = np.maximum(exponent - 1, format.min_exponent) - format.mantissa_bits
    shift = np.minimum(last_place - (exponent - 24), 31)
    dropped = significand % (1 << shift)
    down = nearest_below(y, name)
    # The largest random number that still rounds down, and the next; low bits must not matter.
    chance = (1 << shift) - dropped - 1
    for number, low, up in ((chance, -1, 0), (chance + 1, 0, 1)):
        fits = number < (1 << shift)
        bits = (number << (32 - shift)) + (low % (1 << (32 - shift)))
        bits = np.where(fits, bits, 0).astype(np.uint32).view(np.int32)
        codes = codes_of(y, name, implementation, torch.from_numpy(bits))
        np.testing.assert_array_equal(codes[fits], (down + up)[fits])


def nearest_below(y: np.ndarray, name: str) -> np.ndarray:
    return np.searchsorted(magnitudes(name), y.astype(np.float64), side="right") - 1


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("name", FORMATS)
def test_values_far_below_the_first_code(name: str, implementation: str) -> None:
    """More than 31 bits are dropped: of y over the first code, 31 bits after the point count."""
    first = FORMATS[name].smallest_subnormal
    y = np.array([first * 1.7 * 2.0**-power for power in range(1, 40)], dtype=np.float32)
    fraction = [int(Fraction(float(each)) / Fraction(first) * 2**31) for each in y]
    shift = [min(31, 23 + power) for power in range(1, 40)]
    # The smallest of the random numbers that round up, where any does; and the largest that does not.
    for offset in (0, -1):
        number = [(2**31 - part) + offset * 2 ** (31 - s) for part, s in zip(fraction, shift, strict=True)]
        fits = np.array([n < 2**31 for n in number])
        bits = np.array([n << 1 if n < 2**31 else -1 & 0xFFFFFFFF for n in number], dtype=np.uint32)
        codes = codes_of(y, name, implementation, torch.from_numpy(bits.view(np.int32)))
        np.testing.assert_array_equal(codes, np.where(fits, 1 + offset, 0))


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("name", FORMATS)
def test_values_of_the_format_stay(name: str, implementation: str) -> None:
    y = magnitudes(name).astype(np.float32)
    for bits in (0, -1, 2**31 - 1):
        codes = codes_of(y, name, implementation, torch.full((len(y),), bits, dtype=torch.int32))
        np.testing.assert_array_equal(codes, np.arange(len(y)))


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("name", FORMATS)
def test_the_mean_is_unbiased(name: str, implementation: str) -> None:
    """Each mean lies within 4.5 standard errors: a chance of 7e-6 to fail, were the bits not seeded."""
    draws = 20_000
    gaps = magnitudes(name)
    places = sorted({0, 1, len(gaps) // 2, len(gaps) - 2})
    for place in places:
        step = gaps[place + 1] - gaps[place]
        for part in (0.03, 0.25, 0.7):
            for sign in (1, -1):
                y = np.float32(sign * (gaps[place] + part * step))
                bits = random_bits(draws, seed=place)
                codes = codes_of(np.full(draws, y, dtype=np.float32), name, implementation, bits)
                mean = float(codes_to_values(torch.from_numpy(codes), FORMATS[name]).double().mean())
                standard_error = step * math.sqrt(part * (1 - part) / draws)
                assert abs(mean - float(y)) < 4.5 * standard_error, (y, mean)


@pytest.mark.parametrize("kept_bits", [8, 12, 16])
def test_few_random_bits_bias_by_less_than_their_last_place(kept_bits: int) -> None:
    """Over all numbers of so many bits, rounding up is a little too rare."""
    every = (torch.arange(1 << kept_bits) << (32 - kept_bits)).to(torch.int32)
    for part in (0.0, 2.0**-20, 0.1, 0.5, 0.9, 1 - 2.0**-20):
        y = torch.full((len(every),), 2 + part)  # between 2 and 3 in E2M1
        mean = codes_to_values(round_to_codes(y, FORMATS["e2m1"], every), FORMATS["e2m1"]).double().mean()
        assert -(2.0**-kept_bits) <= float(mean) - float(y[0]) <= 0


def test_all_random_bits_have_no_bias_at_all() -> None:
    """E4M3 drops 20 bits of a normal value: the mean over all of 2^20 numbers is the value itself."""
    every = (torch.arange(1 << 20) << 12).to(torch.int32)
    y = torch.tensor(17.123456)
    codes = round_to_codes(y.expand(len(every)).contiguous(), FORMATS["e4m3"], every)
    assert float(codes_to_values(codes, FORMATS["e4m3"]).double().mean()) == float(y)


@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_equal_to_gfloat_with_the_same_random_bits(name: str) -> None:
    """gfloat's fast variant adds the random number to the dropped fraction as we do."""
    y = values_between_codes(name)
    y = y[y >= (FORMATS[name].smallest_normal or 1)]
    num_bits = 23 - FORMATS[name].mantissa_bits
    bits = random_bits(len(y), seed=3)
    number = (bits.long() & 0xFFFFFFFF) >> (32 - num_bits)
    fast = gfloat.RoundMode.StochasticFast
    theirs = [
        gfloat.round_float(GFLOAT[name], float(value), fast, sat=True, srbits=int(r), srnumbits=num_bits)
        for value, r in zip(y, number, strict=True)
    ]
    ours = codes_to_values(round_to_codes(torch.from_numpy(y), FORMATS[name], bits), FORMATS[name])
    assert ours.tolist() == theirs
