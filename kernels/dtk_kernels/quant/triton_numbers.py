# ruff: noqa: N803, N806 - Triton names what it knows at compile time in capitals
"""Numbers of few bits in Triton: rounding to codes, scales from magnitudes, and what both stand for.

Floats are int32 bits wherever a GPU, or Triton's interpreter, may think differently of NaN, zeros, subnormals
or bfloat16. What float32 arithmetic there is rounds once and correctly, so that every bit is the reference's:
divisions (`div_rn`), products with powers of two, and sums with a constant whose last place is the step of a
format's subnormals. Kernels must be launched without contraction of products and sums.
"""

from typing import NamedTuple

import torch
import triton.language as tl

from dtk_kernels.formats import FORMATS, e8m0_addend
from dtk_kernels.triton_support import jit

__all__ = [
    "AS_INTEGERS",
    "SCALE_KINDS",
    "Elements",
    "ScaleRule",
    "decoded",
    "elements_of",
    "float_bits",
    "rounded",
    "scale_codes",
    "scale_factors",
    "scale_rule",
    "shared_scale",
    "storable",
]

AS_INTEGERS = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float8_e8m0fnu: torch.uint8,
    torch.float8_e4m3fn: torch.uint8,
}
"""What kernels take tensors of a dtype as; float16 is taken as it is."""

SCALE_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float8_e8m0fnu: 2, torch.float8_e4m3fn: 3}
"""How kernels call the dtypes of scales."""


class Elements(NamedTuple):
    """What kernels must know of an element format, as a compile-time tuple.

    Attributes:
        bits, mantissa_bits, bias, max_code, is_integer: As in `dtk_kernels.formats.Format`.
        special: The smallest magnitude that is not finite, 0 if there is none.
        has_infinity: Whether that one is Inf.
    """

    bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    is_integer: bool
    special: int
    has_infinity: bool


class ScaleRule(NamedTuple):
    """How a block's scale follows from its largest magnitude, as a compile-time tuple.

    Attributes:
        kind: Of `SCALE_KINDS`.
        max: The largest element.
        max_exponent: Its exponent.
        addend: As `e8m0_addend`; 0 for others.
    """

    kind: int
    max: float
    max_exponent: int
    addend: int


def elements_of(format: str) -> Elements:
    """Return the constants of a format."""
    one = FORMATS[format]
    special = one.first_nan_code if one.infinity_code is None else one.infinity_code
    return Elements(
        one.bits,
        one.mantissa_bits,
        one.bias,
        one.max_code,
        one.is_integer,
        special or 0,
        one.infinity_code is not None,
    )


def scale_rule(format: str, scale_format: str, dtype: torch.dtype) -> ScaleRule:
    """Return the constants of a scale format, whose scales have that dtype."""
    one = FORMATS[format]
    addend = e8m0_addend(one, scale_format) if scale_format.startswith("e8m0") else 0
    return ScaleRule(SCALE_KINDS[dtype], one.max, one.max_exponent, addend)


@jit
def float_bits(values: tl.tensor) -> tl.tensor:
    """Bits as float32 of what was loaded: float16, or int32 and int16 as the bits of float32 and bfloat16."""
    bits = values
    if values.dtype == tl.float16:
        bits = values.to(tl.float32).to(tl.int32, bitcast=True)
    elif values.dtype == tl.int16:
        bits = values.to(tl.int32) << 16
    return bits


@jit
def _to_bfloat16(bits: tl.tensor) -> tl.tensor:
    """Bits of float32 numbers rounded to those of bfloat16, to nearest even."""
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, upper)


@jit
def storable(values: tl.tensor, like: tl.tensor) -> tl.tensor:
    """Float32 numbers as a pointer wants them: float16, or the bits of float32 or bfloat16."""
    stored = values.to(tl.int32, bitcast=True)
    if like.dtype.element_ty == tl.float16:
        stored = values.to(tl.float16)
    elif like.dtype.element_ty == tl.int16:
        stored = _to_bfloat16(stored).to(tl.int16)
    return stored


@jit
def _nearest(bits: tl.tensor, ELEMENTS: tl.constexpr) -> tl.tensor:
    """Magnitudes of the codes nearest to float32 numbers, ties to even, saturating."""
    MANTISSA: tl.constexpr = ELEMENTS[1]
    BIAS: tl.constexpr = ELEMENTS[2]
    size = bits & 0x7FFFFFFF
    # The last place of this power of two is the step of subnormals: the sum counts steps, rounded to even.
    steps = size.to(tl.float32, bitcast=True) + 2.0 ** (24 - BIAS - MANTISSA)
    code = steps.to(tl.int32, bitcast=True) - ((151 - BIAS - MANTISSA) << 23)
    if not ELEMENTS[4]:
        SHIFT: tl.constexpr = 23 - MANTISSA
        HALF: tl.constexpr = (1 << (SHIFT - 1)) - 1
        normal = ((size + HALF + ((size >> SHIFT) & 1)) >> SHIFT) - ((127 - BIAS) << MANTISSA)
        code = tl.where(size < ((128 - BIAS) << 23), code, normal)
    return tl.minimum(code, ELEMENTS[3])


@jit
def _stochastic(bits: tl.tensor, random_bits: tl.tensor, ELEMENTS: tl.constexpr) -> tl.tensor:
    """Magnitudes of codes, rounded up where dropped and random bits carry; see `quantize`."""
    MANTISSA: tl.constexpr = ELEMENTS[1]
    size = bits & 0x7FFFFFFF
    binade = tl.maximum(size >> 23, 1) - (128 - ELEMENTS[2])  # negative where the format is subnormal
    significand = tl.where(size < 0x800000, size, (size & 0x7FFFFF) | 0x800000)
    shift = 23 - MANTISSA + tl.maximum(-binade, 0)
    significand = significand >> tl.minimum(tl.maximum(shift - 31, 0), 31)
    shift = tl.minimum(shift, 31).to(tl.uint32)
    kept = significand.to(tl.uint32) >> shift
    dropped = significand.to(tl.uint32) - (kept << shift)
    chance = random_bits.to(tl.uint32, bitcast=True) >> (32 - shift)
    up = (dropped + chance) >> shift
    code = (tl.maximum(binade, 0) << MANTISSA) + (kept + up).to(tl.int32)
    return tl.minimum(code, ELEMENTS[3])


@jit
def rounded(
    bits: tl.tensor, random_bits: tl.tensor, ELEMENTS: tl.constexpr, STOCHASTIC: tl.constexpr
) -> tl.tensor:
    """Codes of float32 numbers, as int32; those of integer formats with their sign."""
    code = _stochastic(bits, random_bits, ELEMENTS) if STOCHASTIC else _nearest(bits, ELEMENTS)
    if ELEMENTS[4]:
        return tl.where(bits < 0, -code, code)
    return code | ((bits >> 31) & (1 << (ELEMENTS[0] - 1)))


@jit
def decoded(codes: tl.tensor, ELEMENTS: tl.constexpr) -> tl.tensor:
    """Float32 values of int32 codes; bits above the format's width do not matter."""
    if ELEMENTS[4]:
        return codes.to(tl.float32)
    BITS: tl.constexpr = ELEMENTS[0]
    MANTISSA: tl.constexpr = ELEMENTS[1]
    BIAS: tl.constexpr = ELEMENTS[2]
    magnitude = codes & ((1 << (BITS - 1)) - 1)
    steps = magnitude + ((151 - BIAS - MANTISSA) << 23)  # as in `_nearest`, backwards
    small = steps.to(tl.float32, bitcast=True) - 2.0 ** (24 - BIAS - MANTISSA)
    normal = (magnitude << (23 - MANTISSA)) + ((127 - BIAS) << 23)
    bits = tl.where(magnitude < (1 << MANTISSA), small.to(tl.int32, bitcast=True), normal)
    if ELEMENTS[5]:
        bits = tl.where(magnitude < ELEMENTS[5], bits, 0x7FC00000)
        if ELEMENTS[6]:
            bits = tl.where(magnitude == ELEMENTS[5], 0x7F800000, bits)
    sign = ((codes >> (BITS - 1)) & 1) << 31
    return (bits | sign).to(tl.float32, bitcast=True)


E4M3 = tl.constexpr(tuple(elements_of("e4m3")))


@jit
def scale_codes(amax: tl.tensor, shared: tl.tensor, RULE: tl.constexpr) -> tl.tensor:
    """What is stored as the scale of blocks, as int32.

    Args:
        amax: Float32 bits of the largest magnitude of each block; not finite if one is not.
        shared: The tensor's scale, for NVFP4.
        RULE: A `ScaleRule`.
    """
    finite = amax < 0x7F800000
    amax = tl.where(finite, amax, 0)
    if RULE[0] == 2:
        code = tl.maximum(((amax + RULE[3]) >> 23) - RULE[2], 0)
        return tl.where(finite, code, 255)
    scale = tl.div_rn(amax.to(tl.float32, bitcast=True), RULE[1])
    if RULE[0] == 3:
        code = _nearest(tl.div_rn(scale, shared).to(tl.int32, bitcast=True), E4M3)
        return tl.where(finite, code, 0x7F)
    bits = tl.maximum(scale.to(tl.int32, bitcast=True), 0x00800000)
    bits = tl.where(amax == 0, 0x3F800000, bits)
    bits = tl.where(finite, bits, 0x7FC00000)
    return _to_bfloat16(bits) if RULE[0] == 1 else bits


@jit
def shared_scale(amax: tl.tensor, MAX: tl.constexpr) -> tl.tensor:
    """Float32 bits of the tensor's scale of NVFP4, from those of its largest finite magnitude."""
    scale = tl.div_rn(amax.to(tl.float32, bitcast=True), MAX * 448.0).to(tl.int32, bitcast=True)
    return tl.where(scale == 0, 0x3F800000, scale)


@jit
def scale_factors(codes: tl.tensor, shared: tl.tensor, KIND: tl.constexpr) -> tl.tensor:
    """Float32 numbers that stored scales, as int32, stand for."""
    if KIND == 3:
        return decoded(codes, E4M3) * shared
    bits = codes
    if KIND == 1:
        bits = codes << 16
    if KIND == 2:
        bits = tl.where(codes == 0, 0x00400000, codes << 23)
        bits = tl.where(codes == 255, 0x7FC00000, bits)
    return bits.to(tl.float32, bitcast=True)
