"""Random Hadamard transform by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view
from dtk_kernels.quant._native_arguments import as_rows

__all__ = ["hadamard"]


def hadamard(x: torch.Tensor, signs: torch.Tensor, *, size: int, inverse: bool = False) -> torch.Tensor:
    """Return the blocks of the last dim, transformed or transformed back."""
    require_cpu(x=x)
    values = x.new_empty(x.shape)
    rows, dense_signs = as_rows(x), signs.contiguous()
    _native.hadamard(view(rows), view(dense_signs), inverse, view(values))
    return values
