"""The table of number formats: elements of 4 to 8 bits and the scales of blocks of them. Free of torch.

Every implementation of rounding reads its constants here. Sources: OCP Microscaling Formats (MX) 1.0 for
E2M1, E3M2, E2M3 and E8M0, OCP 8-bit floating point 1.0 for E4M3 and E5M2, NVIDIA's NVFP4 for the two-level
scale. INT8 and INT4 are symmetric. Wider formats are left out: a tensor can simply have their dtype.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

__all__ = ["FORMATS", "PRESETS", "ROUNDINGS", "SCALE_FORMATS", "Format", "Preset", "e8m0_addend"]

_FLOAT32_MANTISSA_BITS = 23


@dataclass(frozen=True)
class Format:
    """An element format: sign, exponent and mantissa, or a two's complement integer.

    An integer format counts as one without exponent bits, whose values are all subnormal: so one rule rounds
    to every format. Codes are unsigned in `values` and in the attributes; a tensor holds those of an integer
    format as int8.

    Attributes:
        name: The name that `dtk_kernels.quant` takes.
        bits: Width of a code.
        exponent_bits: Width of its exponent field; 0 for an integer format.
        mantissa_bits: Width of its mantissa field, without the hidden bit.
        bias: What the exponent field exceeds the exponent by.
        infinity_code: The code of +Inf, None if there is none.
        first_nan_code: The smallest positive code that is NaN, None if there is none; all up to the sign bit
            are NaN, too.
    """

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    infinity_code: int | None = None
    first_nan_code: int | None = None

    @property
    def is_integer(self) -> bool:
        """Whether codes are two's complement integers."""
        return self.exponent_bits == 0

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal value, and of all subnormal ones."""
        return 1 - self.bias

    @property
    def max_code(self) -> int:
        """The code of the largest finite value."""
        special = [code for code in (self.infinity_code, self.first_nan_code) if code is not None]
        return min(special, default=1 << (self.bits - 1)) - 1

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The value of each code, counted up from 0; every value is exact in float32."""
        return tuple(self._value(code) for code in range(1 << self.bits))

    @property
    def max(self) -> float:
        """The largest finite value."""
        return self.values[self.max_code]

    @property
    def max_exponent(self) -> int:
        """The exponent of the largest finite value, floor(log2(max))."""
        return math.frexp(self.max)[1] - 1

    @property
    def smallest_normal(self) -> float | None:
        """The smallest positive normal value; None for an integer format."""
        return None if self.is_integer else math.ldexp(1.0, self.min_exponent)

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value."""
        return self.values[1]

    @property
    def epsilon(self) -> float | None:
        """The step from 1 to the next larger value; None for an integer format (always 1)."""
        return None if self.is_integer else math.ldexp(1.0, -self.mantissa_bits)

    def _value(self, code: int) -> float:
        sign_bit = 1 << (self.bits - 1)
        if self.is_integer:
            return float(code - 2 * sign_bit if code & sign_bit else code)
        sign, magnitude = -1.0 if code & sign_bit else 1.0, code & (sign_bit - 1)
        if self.first_nan_code is not None and magnitude >= self.first_nan_code:
            return math.nan
        if magnitude == self.infinity_code:
            return sign * math.inf
        field, mantissa = divmod(magnitude, 1 << self.mantissa_bits)
        significand = mantissa + (1 << self.mantissa_bits if field else 0)
        exponent = self.min_exponent + max(field - 1, 0) - self.mantissa_bits
        return sign * math.ldexp(significand, exponent)


@dataclass(frozen=True)
class Preset:
    """A block format that has a name of its own.

    Attributes:
        format: The element format.
        block: Rows and columns of a block.
        scale_formats: The scale formats that it allows, the default first.
    """

    format: str
    block: tuple[int, int]
    scale_formats: tuple[str, ...]


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        one.name: one
        for one in (
            Format("e2m1", bits=4, exponent_bits=2, mantissa_bits=1, bias=1),
            Format("e4m3", bits=8, exponent_bits=4, mantissa_bits=3, bias=7, first_nan_code=0x7F),
            Format(
                "e5m2",
                bits=8,
                exponent_bits=5,
                mantissa_bits=2,
                bias=15,
                infinity_code=0x7C,
                first_nan_code=0x7D,
            ),
            Format("e3m2", bits=6, exponent_bits=3, mantissa_bits=2, bias=3),
            Format("e2m3", bits=6, exponent_bits=2, mantissa_bits=3, bias=1),
            Format("int8", bits=8, exponent_bits=0, mantissa_bits=7, bias=-6),
            Format("int4", bits=4, exponent_bits=0, mantissa_bits=3, bias=-2),
        )
    }
)

_E8M0 = ("e8m0", "e8m0_ceil", "e8m0_even", "e8m0_rceil")

SCALE_FORMATS = ("fp32", "bf16", *_E8M0, "nvfp4")

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "mxfp4": Preset("e2m1", block=(1, 32), scale_formats=_E8M0),
        "nvfp4": Preset("e2m1", block=(1, 16), scale_formats=("nvfp4",)),
    }
)

ROUNDINGS = ("nearest", "stochastic")


def e8m0_addend(format: Format, scale_format: str) -> int:
    """Return what makes an E8M0 code of the bits of a block's largest magnitude.

    The code is `((float32 bits of amax + addend) >> 23) - format.max_exponent`, at least 0. The addend
    carries into the exponent where the variant rounds up:

    - "e8m0": never; the scale is 2^(floor(log2 amax) - max_exponent), the rule of OCP MX;
    - "e8m0_ceil": where amax is no power of two;
    - "e8m0_even": where amax, rounded half up to the element's mantissa bits, is the next power of two;
    - "e8m0_rceil": where amax would otherwise exceed the largest element: 2^ceil(log2(amax / max)).
    """
    ones = (1 << _FLOAT32_MANTISSA_BITS) - 1
    if scale_format == "e8m0":
        return 0
    if scale_format == "e8m0_ceil":
        return ones
    if scale_format == "e8m0_even":
        # An integer has one step everywhere, so fewer bits behind the leading one than its mantissa field.
        kept = format.max_exponent if format.is_integer else format.mantissa_bits
        return 1 << (_FLOAT32_MANTISSA_BITS - 1 - kept)
    if scale_format == "e8m0_rceil":
        mantissa_of_max = math.ldexp(format.max, _FLOAT32_MANTISSA_BITS - format.max_exponent)
        return ones - (int(mantissa_of_max) & ones)
    raise ValueError(f"scale_format must be one of {', '.join(_E8M0)}, got {scale_format!r}")
