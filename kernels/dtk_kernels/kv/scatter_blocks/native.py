"""Scatter of blocks by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._memory import memory_overlaps
from dtk_kernels._native_calls import NativeCall, require_cpu, view

__all__ = ["prepare", "scatter_blocks_"]


def scatter_blocks_(pool: torch.Tensor, block_ids: torch.Tensor, blocks: torch.Tensor) -> None:
    """Write each block to its place in the pool, none where the id is -1."""
    call = prepare(pool, block_ids, blocks)  # a name, so that what the arguments point into lives on
    _native.scatter_blocks(*call.arguments)


def prepare(pool: torch.Tensor, block_ids: torch.Tensor, blocks: torch.Tensor) -> NativeCall[None]:
    """Return the call that writes into the pool."""
    require_cpu(pool=pool)
    ids = block_ids.contiguous()
    if memory_overlaps(pool, blocks):
        blocks = blocks.clone()
    return NativeCall((view(pool), view(ids), view(blocks)), None, (pool, ids, blocks))
