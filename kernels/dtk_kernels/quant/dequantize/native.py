"""Dequantise by the compiled module."""

from collections.abc import Sequence

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view
from dtk_kernels.quant._native_arguments import as_matrices, native_block, native_format

__all__ = ["dequantize"]

_SCALE_FORMATS = {
    torch.float32: _native.ScaleFormat.fp32,
    torch.bfloat16: _native.ScaleFormat.bf16,
    torch.float8_e8m0fnu: _native.ScaleFormat.e8m0,
    torch.float8_e4m3fn: _native.ScaleFormat.nvfp4,
}


def dequantize(
    codes: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    tensor_scale: torch.Tensor | None,
) -> torch.Tensor:
    """Return the float32 values of the codes times their block's scale."""
    require_cpu(codes=codes)
    values = codes.new_empty(codes.shape, dtype=torch.float32)
    dense, dense_scales = codes.contiguous(), scales.contiguous()
    shared = 1.0 if tensor_scale is None else float(tensor_scale.detach())
    _native.dequantize(
        view(as_matrices(dense)),
        view(dense_scales),
        _SCALE_FORMATS[scales.dtype],
        shared,
        native_format(format),
        native_block(block),
        view(values),
    )
    return values
