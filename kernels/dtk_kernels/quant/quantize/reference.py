"""Quantise in plain torch: the oracle of the other implementations."""

from collections.abc import Sequence

import torch

from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._blocks import block_amax, spread
from dtk_kernels.quant._rounding import round_to_codes
from dtk_kernels.quant._scale_rules import block_factors, block_scales, tensor_scale

__all__ = ["quantize"]


@torch.no_grad()  # as all implementations: a gradient through the scales alone would be no one's wish
def quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return codes, block scales and the tensor's scale (1 unless the scale format is nvfp4)."""
    elements = FORMATS[format]
    x = x.float()
    shared = tensor_scale(x, elements, scale_format)
    scales = block_scales(block_amax(x, block), elements, scale_format, shared)
    factors = spread(block_factors(scales, shared), x.shape, block)
    codes = round_to_codes(x / factors, elements, random_bits)
    unusable = factors.isnan() | (factors == 0)
    return codes.masked_fill(unusable, 0).contiguous(), scales, shared
