"""Rounding of float32 values to codes by integer operations, in plain torch: all implementations equal it.

A magnitude is split into exponent and 24-bit significand. Of the significand, `shift` low bits lie below the
format's last place there; what is kept, rounded up or not, plus the binade above the smallest normal one in
the place of the exponent field is the code, carries included. Codes beyond the largest finite one saturate.
"""

import torch

from dtk_kernels.formats import Format

__all__ = ["codes_to_values", "round_to_codes"]

_HIDDEN_BIT = 1 << 23
_MAX_SHIFT = 31


def round_to_codes(y: torch.Tensor, format: Format, random_bits: torch.Tensor | None = None) -> torch.Tensor:
    """Return the code of each value: to nearest, ties to even codes, or stochastically by random bits.

    Args:
        y: float32. NaN gives an arbitrary code.
        format: What to round to.
        random_bits: int32 in the shape of `y`, taken as unsigned: a value is rounded up (away from zero) if
            its dropped bits plus the highest `shift` random bits carry into the kept ones.

    Returns:
        int8 for an integer format, else uint8; in the shape of `y`.
    """
    bits = y.view(torch.int32).long()
    magnitude = bits & 0x7FFFFFFF
    exponent = (magnitude >> 23).clamp(min=1)
    significand = torch.where(
        magnitude < _HIDDEN_BIT, magnitude, (magnitude & (_HIDDEN_BIT - 1)) | _HIDDEN_BIT
    )
    binade = exponent - 127 - format.min_exponent  # negative where the format is subnormal
    shift = 23 - format.mantissa_bits + (-binade).clamp(min=0)
    significand = significand >> (shift - _MAX_SHIFT).clamp(min=0, max=_MAX_SHIFT)
    shift = shift.clamp(max=_MAX_SHIFT)
    kept = significand >> shift
    dropped = significand - (kept << shift)
    if random_bits is None:
        half = 1 << (shift - 1)
        up = (dropped > half) | ((dropped == half) & (kept % 2 == 1))
    else:
        chance = (random_bits.long() & 0xFFFFFFFF) >> (32 - shift)
        up = dropped + chance >= (1 << shift)
    code = (binade.clamp(min=0) << format.mantissa_bits) + kept + up
    code = code.clamp(max=format.max_code)
    if format.is_integer:
        return torch.where(bits < 0, -code, code).to(torch.int8)
    return torch.where(bits < 0, code + (1 << (format.bits - 1)), code).to(torch.uint8)


def codes_to_values(codes: torch.Tensor, format: Format) -> torch.Tensor:
    """Return the float32 value of each code; the bits above a narrow float format's are ignored."""
    if format.is_integer:
        return codes.float()
    table = torch.tensor(format.values, dtype=torch.float32, device=codes.device)
    return table[codes.int() & ((1 << format.bits) - 1)]
