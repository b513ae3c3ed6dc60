"""Unpack by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view
from dtk_kernels.quant._native_arguments import as_rows

__all__ = ["unpack"]


def unpack(packed: torch.Tensor, count: int, *, signed: bool = False) -> torch.Tensor:
    """Return the low and the high nibble of each byte, one after the other."""
    require_cpu(packed=packed)
    codes = packed.new_empty((*packed.shape[:-1], count), dtype=torch.int8 if signed else torch.uint8)
    dense = packed.contiguous()
    _native.unpack(view(dense), view(as_rows(codes)), signed)
    return codes
