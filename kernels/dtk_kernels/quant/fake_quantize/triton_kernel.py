"""Fake quantise in Triton: the kernel of `quantize`, which writes values in place of codes and scales."""

from collections.abc import Sequence

import torch

from dtk_kernels.quant.quantize.triton_kernel import fake_quantize_variants as aot_variants
from dtk_kernels.quant.quantize.triton_kernel import rounded_to_format

__all__ = ["aot_variants", "fake_quantize"]


def fake_quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> torch.Tensor:
    """Return `x` rounded to the format and back, in its dtype; arguments as of `quantize`."""
    result = x.new_empty(x.shape)
    rounded_to_format(x, result, format, block, scale_format, random_bits, fake=True)
    return result
