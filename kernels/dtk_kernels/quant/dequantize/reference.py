"""Dequantise in plain torch: the oracle of the other implementations."""

from collections.abc import Sequence

import torch

from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._blocks import spread
from dtk_kernels.quant._rounding import codes_to_values
from dtk_kernels.quant._scale_rules import block_factors

__all__ = ["dequantize"]


def dequantize(
    codes: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    tensor_scale: torch.Tensor | None,
) -> torch.Tensor:
    """Return the float32 values of the codes times their block's scale."""
    factors = spread(block_factors(scales, tensor_scale), codes.shape, block)
    return (codes_to_values(codes, FORMATS[format]) * factors).contiguous()
