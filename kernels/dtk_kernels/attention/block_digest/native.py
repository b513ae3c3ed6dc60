"""Block digest by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view

__all__ = ["block_digest"]


def block_digest(keys: torch.Tensor, block_lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the channel-wise (min, max) of the first `block_lengths[n]` keys of every block n."""
    require_cpu(keys=keys)
    lengths = block_lengths.contiguous()
    key_min = torch.empty((keys.shape[0], keys.shape[1], keys.shape[3]), dtype=keys.dtype, device="cpu")
    key_max = torch.empty_like(key_min)
    _native.block_digest(view(keys), view(lengths), view(key_min), view(key_max))
    return key_min, key_max
