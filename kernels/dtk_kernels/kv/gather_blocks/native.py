"""Gather of blocks by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view

__all__ = ["gather_blocks", "prepare"]


def gather_blocks(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    """Return the named blocks, zeros where the id is -1."""
    call = prepare(pool, block_ids)
    _native.gather_blocks(*call.arguments)
    return call.result


def prepare(pool: torch.Tensor, block_ids: torch.Tensor) -> NativeCall[torch.Tensor]:
    """Return the call that fills the blocks."""
    require_cpu(pool=pool)
    ids = block_ids.contiguous()
    blocks = pool.new_empty((ids.shape[0], *pool.shape[1:]))
    return NativeCall((view(pool), view(ids), view(blocks)), blocks, (pool, ids, blocks))
