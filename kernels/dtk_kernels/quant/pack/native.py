"""Pack by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view
from dtk_kernels.quant._native_arguments import as_rows

__all__ = ["pack"]


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Return two codes in each byte, the first one in the low nibble."""
    require_cpu(codes=codes)
    packed = codes.new_empty((*codes.shape[:-1], (codes.shape[-1] + 1) // 2), dtype=torch.uint8)
    dense = as_rows(codes).contiguous()
    _native.pack(view(dense), view(packed))
    return packed
