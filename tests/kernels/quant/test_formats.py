"""The table of formats against the decoders of ml_dtypes, gfloat and torch, code by code."""

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch

from dtk_kernels.formats import FORMATS, SCALE_FORMATS, e8m0_addend
from tests.kernels.quant.oracles import FLOAT_FORMATS, ML_DTYPES

GFLOAT = {
    "e2m1": gfloat.formats.format_info_ocp_e2m1,
    "e4m3": gfloat.formats.format_info_ocp_e4m3,
    "e5m2": gfloat.formats.format_info_ocp_e5m2,
    "e3m2": gfloat.formats.format_info_ocp_e3m2,
    "e2m3": gfloat.formats.format_info_ocp_e2m3,
}


def test_every_format_is_there_under_its_own_name() -> None:
    assert list(FORMATS) == ["e2m1", "e4m3", "e5m2", "e3m2", "e2m3", "int8", "int4"]
    assert all(name == format.name for name, format in FORMATS.items())
    with pytest.raises(TypeError):
        FORMATS["mine"] = FORMATS["int4"]


@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_values_of_floats(name: str) -> None:
    format = FORMATS[name]
    codes = np.arange(1 << format.bits, dtype=np.uint8)
    ours = np.array(format.values)
    theirs = codes.view(ML_DTYPES[name]).astype(np.float64)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(ours[~np.isnan(ours)]), np.signbit(theirs[~np.isnan(theirs)]))
    np.testing.assert_array_equal(ours, gfloat.decode_ndarray(GFLOAT[name], codes))


@pytest.mark.parametrize(("name", "dtype"), [("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)])
def test_values_are_torchs(name: str, dtype: torch.dtype) -> None:
    theirs = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    torch.testing.assert_close(torch.tensor(FORMATS[name].values), theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4)])
def test_values_of_integers_are_twos_complement(name: str, bits: int) -> None:
    assert sorted(FORMATS[name].values) == list(range(-(2 ** (bits - 1)), 2 ** (bits - 1)))
    assert FORMATS[name].values[-1] == -1
    assert FORMATS[name].max == 2 ** (bits - 1) - 1


@pytest.mark.parametrize("name", FLOAT_FORMATS)
def test_what_the_formats_can_do(name: str) -> None:
    format, theirs = FORMATS[name], ml_dtypes.finfo(ML_DTYPES[name])
    assert format.max == float(theirs.max)
    assert format.smallest_normal == float(theirs.smallest_normal)
    assert format.smallest_subnormal == float(theirs.smallest_subnormal)
    assert format.epsilon == float(theirs.eps)
    assert format.max_exponent == theirs.maxexp - 1
    assert format.exponent_bits + format.mantissa_bits + 1 == format.bits
    assert format.min_exponent == theirs.minexp


@pytest.mark.parametrize("scale_format", [name for name in SCALE_FORMATS if not name.startswith("e8m0")])
def test_only_e8m0_has_an_addend(scale_format: str) -> None:
    with pytest.raises(ValueError, match="scale_format must be one of e8m0,"):
        e8m0_addend(FORMATS["e2m1"], scale_format)
