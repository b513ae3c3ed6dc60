"""Fake quantise in plain torch: the oracle of the other implementations."""

from collections.abc import Sequence

import torch

from dtk_kernels.quant.dequantize.reference import dequantize
from dtk_kernels.quant.quantize.reference import quantize

__all__ = ["fake_quantize"]


def fake_quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> torch.Tensor:
    """Return `x` rounded to the format and back, in its dtype."""
    codes, scales, shared = quantize(
        x, format, block=block, scale_format=scale_format, rounding=rounding, random_bits=random_bits
    )
    return dequantize(codes, scales, format, block=block, tensor_scale=shared).to(x.dtype)
