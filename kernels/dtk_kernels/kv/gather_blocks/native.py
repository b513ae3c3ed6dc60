"""Gather of blocks by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view

__all__ = ["gather_blocks"]


def gather_blocks(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    """Return the named blocks, zeros where the id is -1."""
    require_cpu(pool=pool)
    ids = block_ids.contiguous()
    blocks = torch.empty((ids.shape[0], *pool.shape[1:]), dtype=pool.dtype, device="cpu")
    _native.gather_blocks(view(pool), view(ids), view(blocks))
    return blocks
