# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Quantised operands in Triton: loading codes and scales as numbers, and the tile that a program computes."""

import torch
import triton.language as tl

from dtk_kernels.formats import FORMATS
from dtk_kernels.triton_support import jit

__all__ = [
    "as_stored",
    "decoding",
    "load_bytes",
    "load_scales",
    "load_values",
    "scale_kind",
    "scale_type",
    "store_tile",
    "tile_of",
]


@jit
def float_values(
    codes: tl.tensor, BITS: tl.constexpr, MANTISSA: tl.constexpr, BIAS: tl.constexpr, SPECIAL: tl.constexpr
) -> tl.tensor:
    """Values of int32 codes of a float format: NaN from the magnitude SPECIAL on, which in E5M2 is Inf."""
    magnitude = codes & ((1 << (BITS - 1)) - 1)
    normal = ((magnitude << (23 - MANTISSA)) + ((127 - BIAS) << 23)).to(tl.float32, bitcast=True)
    # An integer times the smallest value: as a float's bits it would be subnormal, and may be lost.
    subnormal = magnitude.to(tl.float32) * (2.0 ** (1 - BIAS - MANTISSA))
    value = tl.where(magnitude < (1 << MANTISSA), subnormal, normal)
    if BITS == 8:
        value = tl.where(magnitude >= SPECIAL, float("nan"), value)
        if MANTISSA == 2:
            value = tl.where(magnitude == SPECIAL, float("inf"), value)
    return tl.where((codes & (1 << (BITS - 1))) != 0, -value, value)


@jit
def load_bytes(
    at: tl.tensor,
    in_row: tl.tensor,
    first: tl.tensor,
    count: tl.tensor,
    TILE: tl.constexpr,
    WHOLE_TILES: tl.constexpr,
) -> tl.tensor:
    """Load TILE bytes of each row from `first` on; zeros from `count` on, if tiles may reach there."""
    index = first + tl.arange(0, TILE)
    mask = in_row[:, None]
    if not WHOLE_TILES:  # a mask along the row would make the compiler load byte by byte
        mask = mask & (index < count)[None, :]
    return tl.load(at[:, None] + index[None, :], mask=mask, other=0)


@jit
def load_values(
    at: tl.tensor,
    in_row: tl.tensor,
    first: tl.tensor,
    depth: tl.tensor,
    TILE_K: tl.constexpr,
    WHOLE_TILES: tl.constexpr,
    BITS: tl.constexpr,
    MANTISSA: tl.constexpr,
    BIAS: tl.constexpr,
    SPECIAL: tl.constexpr,
    IS_INTEGER: tl.constexpr,
) -> tl.tensor:
    """Load TILE_K codes of each row from `first` on as float16, which is exact; zeros past the end."""
    if BITS == 4:
        both = load_bytes(at, in_row, first // 2, (depth + 1) // 2, TILE_K // 2, WHOLE_TILES).to(tl.int32)
        codes = tl.interleave(both & 15, both >> 4)
    else:
        codes = load_bytes(at, in_row, first, depth, TILE_K, WHOLE_TILES).to(tl.int32)
    if IS_INTEGER:
        value = ((codes ^ 8) - 8 if BITS == 4 else codes).to(tl.float32)
    else:
        value = float_values(codes, BITS, MANTISSA, BIAS, SPECIAL)
    if BITS == 4 and not WHOLE_TILES:
        inside = first + tl.arange(0, TILE_K) < depth
        value = tl.where(inside[None, :], value, 0.0)  # the last byte of an odd row has a nibble too many
    return value.to(tl.float16)


@jit
def load_scales(at: tl.tensor, inside: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """Load scales as float32; KIND is their `scale_kind`."""
    scale = tl.load(at, mask=inside, other=0)
    if KIND == 1:
        exponent = scale.to(tl.int32)
        bits = tl.where(exponent == 0, 0x00400000, exponent << 23)
        bits = tl.where(exponent == 255, 0x7FC00000, bits)
        return bits.to(tl.float32, bitcast=True)
    if KIND == 2:
        return float_values(scale.to(tl.int32), 8, 3, 7, 0x7F)
    if KIND == 3:
        return (scale.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    return scale.to(tl.float32)


@jit
def tile_of(rows: tl.tensor, columns: tl.tensor, TILE_M: tl.constexpr, TILE_N: tl.constexpr) -> tl.tensor:
    """Return this program's first row and column; eight tiles of rows share the same columns in the cache."""
    program = tl.program_id(0)
    tiles_down, tiles_across = tl.cdiv(rows, TILE_M), tl.cdiv(columns, TILE_N)
    band = program // (8 * tiles_across)
    height = tl.minimum(tiles_down - band * 8, 8)
    within = program % (8 * tiles_across)
    return (band * 8 + within % height) * TILE_M, (within // height) * TILE_N


@jit
def store_tile(
    result: tl.tensor, tile: tl.tensor, row: tl.tensor, column: tl.tensor, rows: tl.tensor, columns: tl.tensor
) -> None:
    """Store the part of a tile that lies inside of a dense matrix."""
    at = result + row.to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(at, tile, mask=(row < rows)[:, None] & (column < columns)[None, :])


def decoding(format: str) -> tuple[int, int, int, int, bool]:
    """Return what `load_values` must know of a format, in the order of its parameters."""
    one = FORMATS[format]
    special = one.first_nan_code if one.infinity_code is None else one.infinity_code
    return one.bits, one.mantissa_bits, one.bias, special or 0, one.is_integer


def scale_kind(dtype: torch.dtype) -> int:
    """Return how scales of a dtype are decoded: 0 as float32, 1 as E8M0, 2 as E4M3, 3 as bfloat16."""
    return {torch.float8_e8m0fnu: 1, torch.float8_e4m3fn: 2, torch.bfloat16: 3}.get(dtype, 0)


def scale_type(dtype: torch.dtype) -> str:
    """Return the Triton type of `as_stored` scales."""
    return {torch.float32: "fp32", torch.bfloat16: "i16"}.get(dtype, "u8")


def as_stored(scales: torch.Tensor) -> torch.Tensor:
    """Return scales of one or two bytes as integers, which every GPU can load and the interpreter decode."""
    if scales.element_size() == 4:
        return scales
    return scales.view(torch.uint8 if scales.element_size() == 1 else torch.int16)
