"""How a block's scale follows from its largest magnitude, in plain torch: all implementations equal it."""

import math

import torch

from dtk_kernels.formats import FORMATS, Format, e8m0_addend
from dtk_kernels.quant._rounding import round_to_codes

__all__ = ["block_factors", "block_scales", "tensor_scale"]

_SMALLEST_NORMAL = 2.0**-126
_E8M0_NAN = 255
_E4M3 = FORMATS["e4m3"]


def tensor_scale(x: torch.Tensor, format: Format, scale_format: str) -> torch.Tensor:
    """Return the float32 scale `[]` that all blocks share: 1, but for NVFP4.

    There it is the largest finite magnitude over (largest element times largest E4M3 scale); 1 if that is 0.
    """
    one = x.new_ones((), dtype=torch.float32)
    if scale_format != "nvfp4" or not x.numel():
        return one
    amax = x.abs().masked_fill(~x.isfinite(), 0).amax()
    # The divisor is a tensor: a GPU would multiply by the reciprocal of a number.
    scale = amax / amax.new_tensor(format.max * _E4M3.max)
    return torch.where(scale == 0, one, scale)


def block_scales(amax: torch.Tensor, format: Format, scale_format: str, shared: torch.Tensor) -> torch.Tensor:
    """Return the scale of each block in the dtype of its format; NaN where `amax` is.

    Args:
        amax: float32, the largest magnitude of each block.
        format: The element format.
        scale_format: The scale's format.
        shared: float32 `[]`, from `tensor_scale`.
    """
    if scale_format.startswith("e8m0"):
        codes = ((amax.view(torch.int32) + e8m0_addend(format, scale_format)) >> 23) - format.max_exponent
        codes = codes.clamp(min=0).masked_fill(amax.isnan(), _E8M0_NAN)
        return codes.to(torch.uint8).view(torch.float8_e8m0fnu)
    scale = amax / amax.new_tensor(format.max)
    if scale_format == "nvfp4":
        codes = round_to_codes(scale / shared, _E4M3)
        nan_code = _E4M3.first_nan_code or 0
        return codes.masked_fill(amax.isnan(), nan_code).view(torch.float8_e4m3fn)
    scale = scale.clamp(min=_SMALLEST_NORMAL).masked_fill(amax == 0, 1)
    scale = scale.masked_fill(amax.isnan(), math.nan)  # NaNs of one kind
    return scale if scale_format == "fp32" else scale.to(torch.bfloat16)


def block_factors(scales: torch.Tensor, shared: torch.Tensor | None) -> torch.Tensor:
    """Return the float32 number that the elements of each block are divided by, and multiplied by later."""
    factors = scales.to(torch.float32)
    return factors if shared is None or scales.dtype != torch.float8_e4m3fn else factors * shared
