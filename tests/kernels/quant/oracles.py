"""Quantisation written a second time, in numpy and plain loops: values from ml_dtypes, exact comparisons."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from dtk_kernels.formats import FORMATS, Format

__all__ = [
    "FLOAT_FORMATS",
    "MAX",
    "ML_DTYPES",
    "STEP_OF_TOP_BINADE",
    "block_factor",
    "block_slices",
    "magnitudes",
    "midpoints_and_neighbours",
    "nearest_codes",
    "quantize_by_loops",
]

ML_DTYPES: dict[str, Any] = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
}
FLOAT_FORMATS = list(ML_DTYPES)

MAX = {"e2m1": 6, "e4m3": 448, "e5m2": 57344, "e3m2": 28, "e2m3": 7.5, "int8": 127, "int4": 7}
STEP_OF_TOP_BINADE = {"e2m1": 2, "e4m3": 32, "e5m2": 8192, "e3m2": 4, "e2m3": 0.5, "int8": 1, "int4": 1}


def magnitudes(name: str) -> np.ndarray:
    """The finite values from 0 up, in the order of their codes."""
    if name in ("int8", "int4"):
        return np.arange(MAX[name] + 1, dtype=np.float64)
    half = np.arange(1 << (FORMATS[name].bits - 1), dtype=np.uint8).view(ML_DTYPES[name])
    values = half.astype(np.float64)
    return values[np.isfinite(values)]


def nearest_codes(y: np.ndarray, name: str) -> np.ndarray:
    """The code of each float64 value: nearest, ties to even, saturating; unsigned, also for integers."""
    values = magnitudes(name)
    size = np.minimum(np.abs(y), values[-1])
    below = np.minimum(np.searchsorted(values, size, side="right") - 1, len(values) - 2)
    twice, both = 2 * size, values[below] + values[below + 1]  # exact: few bits
    codes = below + ((twice > both) | ((twice == both) & (below % 2 == 1)))
    negative = np.signbit(y)
    if name in ("int8", "int4"):
        return np.where(negative, -codes, codes).astype(np.int8)
    return (codes + negative * (1 << (FORMATS[name].bits - 1))).astype(np.uint8)


def midpoints_and_neighbours(name: str) -> np.ndarray:
    """float32: every value and midpoint of the format and both neighbours of each, of both signs."""
    values = magnitudes(name)
    last = values[-1] + (values[-1] - values[-2]) / 2  # the tie with the first value that is missing
    points = np.concatenate([values, (values[:-1] + values[1:]) / 2, [last]]).astype(np.float32)
    around = [points, np.nextafter(points, np.float32(-1)), np.nextafter(points, np.float32(np.inf))]
    return np.concatenate([*around, *(-each for each in around)])


def block_slices(shape: tuple[int, int], block: tuple[int | None, int | None] | None) -> Iterator[Any]:
    """Yield (index in the scales, slices of the matrix) of each block."""
    rows, columns = shape
    height, width = (None, None) if block is None else block
    tops = range(0, rows, height or max(rows, 1))
    lefts = range(0, columns, width or max(columns, 1))
    for (i, top), (j, left) in itertools.product(enumerate(tops), enumerate(lefts)):
        yield (
            (i, j),
            (
                slice(top, top + (height or max(rows, 1))),
                slice(left, left + (width or max(columns, 1))),
            ),
        )


def quantize_by_loops(
    x: np.ndarray, name: str, block: tuple[int | None, int | None] | None, scale_format: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and dequantised values of float32 matrices `[..., rows, columns]`."""
    codes = np.zeros(x.shape, dtype=np.int8 if name in ("int8", "int4") else np.uint8)
    factors = np.full(x.shape, np.nan, dtype=np.float32)
    shared = np.abs(x[np.isfinite(x)]).max(initial=np.float32(0)) / np.float32(MAX[name] * 448)
    shared = np.float32(1) if shared == 0 else shared
    lead = [(...,)] if block is None else list(np.ndindex(x.shape[:-2]))
    for index in lead:
        inner = [(...,)] if block is None else [slices for _, slices in block_slices(x.shape[-2:], block)]
        for place in inner:
            part = x[index][place]
            if part.size and np.isfinite(part).all():
                factor = block_factor(np.abs(part).max(), name, scale_format, shared)
                factors[index][place] = factor
                if factor != 0:
                    codes[index][place] = nearest_codes((part / factor).astype(np.float64), name)
    with np.errstate(over="ignore"):
        return codes, decode_table(FORMATS[name])[codes.view(np.uint8)] * factors


def decode_table(format: Format) -> np.ndarray:
    """float32 values by byte, from ml_dtypes or, for an integer, two's complement."""
    every = np.arange(256, dtype=np.uint8)
    if format.is_integer:
        return every.view(np.int8).astype(np.float32)
    return (every & ((1 << format.bits) - 1)).view(ML_DTYPES[format.name]).astype(np.float32)


def block_factor(amax: np.float32, name: str, scale_format: str, shared: np.float32) -> np.float32:
    largest = np.float32(MAX[name])
    if scale_format == "nvfp4":
        code = nearest_codes(np.float64((amax / largest) / shared), "e4m3")
        return np.float32(magnitudes("e4m3")[int(code)]) * shared
    if scale_format.startswith("e8m0"):
        return np.float32(2.0 ** max(-127, _e8m0_exponent(float(amax), name, scale_format)))
    scale = np.float32(1) if amax == 0 else max(amax / largest, np.float32(2.0**-126))
    return np.float32(scale.astype(ml_dtypes.bfloat16)) if scale_format == "bf16" else scale


def _e8m0_exponent(amax: float, name: str, scale_format: str) -> int:
    if amax == 0:
        return -127
    mantissa, exponent = math.frexp(amax)  # mantissa in [0.5, 1)
    of_max = math.frexp(MAX[name])[1] - 1
    if scale_format == "e8m0":
        return exponent - 1 - of_max
    if scale_format == "e8m0_ceil":
        return exponent - (mantissa == 0.5) - of_max
    if scale_format == "e8m0_even":
        # amax goes up if it lies less than half of the top binade's step below the next power of two.
        step = STEP_OF_TOP_BINADE[name]
        tie = (2.0**of_max * 2 - step / 2) / (2.0**of_max * 2)
        return exponent - (mantissa < tie) - of_max
    ratio = Fraction(amax) / Fraction(MAX[name])
    power = exponent - of_max - 3
    while Fraction(2) ** power < ratio:
        power += 1
    return power
