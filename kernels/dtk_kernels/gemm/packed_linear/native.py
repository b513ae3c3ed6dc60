"""Packed linear by the compiled module: INT8 activations, exact sums within a block."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view
from dtk_kernels.gemm.packed_linear import WEIGHT_FORMATS

__all__ = ["packed_linear", "prepare"]


def packed_linear(
    x: torch.Tensor,
    packed_weight: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block_size: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `x @ W.T + bias`, with activations rounded to INT8 in blocks."""
    call = prepare(x, packed_weight, scales, format, block_size=block_size, bias=bias)
    _native.packed_linear(*call.arguments)
    return call.result


def prepare(
    x: torch.Tensor,
    packed_weight: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block_size: int,
    bias: torch.Tensor | None = None,
) -> NativeCall[torch.Tensor]:
    """Return the call that fills `[..., N]`."""
    require_cpu(x=x)
    rows = x.reshape(-1, x.shape[-1])
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    bias = None if bias is None else bias.contiguous()
    output = x.new_empty((*x.shape[:-1], packed_weight.shape[0]))
    arguments = (
        view(rows), view(packed_weight), view(scales), WEIGHT_FORMATS.index(format), block_size,
        None if bias is None else view(bias), view(output),
    )  # fmt: skip
    held = (rows, packed_weight, scales, output)
    return NativeCall(arguments, output, held if bias is None else (*held, bias))
