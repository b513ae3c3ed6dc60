"""Rounding of single values: each value and midpoint of each format, one ulp around them, and far beyond.

Quantised in pairs with the power of two that makes an E8M0 scale 1, so codes are those of the values.
"""

import gfloat
import ml_dtypes
import numpy as np
import pytest
import torch

from dtk_kernels import quant
from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._rounding import codes_to_values, round_to_codes
from tests.kernels.implementations import EVERYWHERE
from tests.kernels.quant.oracles import (
    FLOAT_FORMATS,
    ML_DTYPES,
    decode_table,
    midpoints_and_neighbours,
    nearest_codes,
)
from tests.kernels.quant.test_formats import GFLOAT

TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def codes_of(
    y: np.ndarray, name: str, implementation: str, random_bits: torch.Tensor | None = None
) -> np.ndarray:
    """The codes of values below twice the largest power of two in the format."""
    companion = np.full_like(y, 2.0 ** FORMATS[name].max_exponent)
    x = torch.from_numpy(np.stack([y, companion], axis=1))
    if random_bits is not None:
        random_bits = torch.stack([random_bits, torch.zeros_like(random_bits)], dim=1)
    codes, scales = quant.quantize(
        x, name, block=(1, 2), scale_format="e8m0", implementation=implementation,
        rounding="nearest" if random_bits is None else "stochastic", random_bits=random_bits,
    )  # fmt: skip
    assert isinstance(scales, torch.Tensor)
    assert (scales.float() == 1).all()
    return codes[:, 0].numpy()


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("name", FORMATS)
def test_values_midpoints_and_neighbours(name: str, implementation: str) -> None:
    y = midpoints_and_neighbours(name)
    codes = codes_of(y, name, implementation)
    np.testing.assert_array_equal(codes, nearest_codes(y.astype(np.float64), name))
    # No code is left out, but for those that no value rounds to.
    assert len(np.unique(codes)) == 2 * FORMATS[name].max_code + (1 if FORMATS[name].is_integer else 2)


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_equal_to_ml_dtypes_torch_and_gfloat(name: str, implementation: str) -> None:
    y = midpoints_and_neighbours(name)
    codes = codes_of(y, name, implementation)
    overflow = np.abs(y) > FORMATS[name].max
    theirs = y.astype(ML_DTYPES[name])
    np.testing.assert_array_equal(codes[~overflow], theirs.view(np.uint8)[~overflow])
    ours = decode_table(FORMATS[name])[codes]
    by_gfloat = gfloat.round_ndarray(GFLOAT[name], y.astype(np.float64), sat=True)
    np.testing.assert_array_equal(ours, by_gfloat)
    if name in TORCH:
        by_torch = torch.from_numpy(y).to(TORCH[name]).view(torch.uint8).numpy()
        np.testing.assert_array_equal(codes[~overflow], by_torch[~overflow])


@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_random_values_are_equal_to_ml_dtypes(name: str) -> None:
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=torch.Generator().manual_seed(1))
    y = bits.to(torch.int32).view(torch.float32)
    y = y[y.abs() <= FORMATS[name].max]  # leaves out NaN, too
    assert len(y) > 80_000
    ours = round_to_codes(y, FORMATS[name])
    np.testing.assert_array_equal(ours.numpy(), y.numpy().astype(ML_DTYPES[name]).view(np.uint8))


BEYOND = np.array([1.0001, 1.5, 2, 1e4, 1e30, np.inf], dtype=np.float32)


@pytest.mark.parametrize("name", FORMATS)
def test_beyond_the_largest_value_codes_saturate(name: str) -> None:
    format = FORMATS[name]
    y = torch.from_numpy(BEYOND * np.float32(format.max))
    assert (round_to_codes(y, format) == format.max_code).all()
    values = codes_to_values(round_to_codes(-y, format), format)
    assert (values == -format.max).all()


class TestWhereTheOraclesDiffer:
    """Overflow and NaN are a matter of taste; these are the tastes that we do not share."""

    @pytest.mark.parametrize("name", ["e2m1", "e3m2", "e2m3"])
    def test_ml_dtypes_saturates_the_small_formats_as_we_do(self, name: str) -> None:
        y = BEYOND * np.float32(FORMATS[name].max)
        np.testing.assert_array_equal(y.astype(ML_DTYPES[name]).view(np.uint8), FORMATS[name].max_code)

    def test_ml_dtypes_overflows_e4m3_to_nan(self) -> None:
        y = np.array([448, 464, np.nextafter(np.float32(464), np.float32(500)), np.inf], dtype=np.float32)
        theirs = y.astype(ML_DTYPES["e4m3"]).view(np.uint8)
        assert theirs.tolist() == [0x7E, 0x7E, 0x7F, 0x7F]
        assert round_to_codes(torch.from_numpy(y), FORMATS["e4m3"]).tolist() == [0x7E] * 4

    def test_ml_dtypes_and_torch_overflow_e5m2_to_infinity(self) -> None:
        y = np.array([57344, np.nextafter(np.float32(61440), np.float32(0)), 61440], dtype=np.float32)
        assert y.astype(ML_DTYPES["e5m2"]).view(np.uint8).tolist() == [0x7B, 0x7B, 0x7C]
        assert torch.from_numpy(y).to(torch.float8_e5m2).view(torch.uint8).tolist() == [0x7B, 0x7B, 0x7C]
        assert round_to_codes(torch.from_numpy(y), FORMATS["e5m2"]).tolist() == [0x7B] * 3

    @pytest.mark.skipif(torch.__version__ < "2.13", reason="torch made NaN of it before")
    def test_torch_saturates_e4m3_as_we_do(self) -> None:
        y = torch.tensor([464.0, 465.0, 1000.0, torch.inf])
        assert y.to(torch.float8_e4m3fn).view(torch.uint8).tolist() == [0x7E] * 4

    def test_nan_has_no_code_in_e2m1(self) -> None:
        nan = np.array([np.nan], dtype=np.float32)
        assert nan.astype(ML_DTYPES["e2m1"]).view(np.uint8).tolist() == [8]  # -0
        with pytest.raises(ValueError, match="NaN"):
            gfloat.encode_float(GFLOAT["e2m1"], np.nan)
        x = torch.tensor([[1.0, torch.nan], [1.0, 2.0]])
        codes, scales = quant.quantize(x, "e2m1", block=(1, 2), implementation="reference")
        assert codes.tolist() == [[0, 0], [5, 7]]
        assert isinstance(scales, torch.Tensor)
        assert scales.isnan().tolist() == [[True], [False]]

    def test_zero_has_no_e8m0_code(self) -> None:
        zero = np.zeros(1, dtype=np.float32)
        assert zero.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8).tolist() == [0xFF]  # NaN
        assert torch.zeros(1).to(torch.float8_e8m0fnu).view(torch.uint8).tolist() == [0]
        for scale_format in ("e8m0", "e8m0_ceil", "e8m0_even", "e8m0_rceil"):
            _, scales = quant.quantize(
                torch.zeros(1), "e2m1", block=None, scale_format=scale_format, implementation="reference"
            )
            assert isinstance(scales, torch.Tensor)
            assert scales.view(torch.uint8) == 0  # 2^-127, as torch has it
