"""Scatter of KV blocks in Triton: absent ids are skipped."""

import torch

from dtk_kernels._memory import memory_overlaps
from dtk_kernels.kv import triton_kernel as shared
from dtk_kernels.triton_support import KernelVariant

__all__ = ["aot_variants", "scatter_blocks_"]


def scatter_blocks_(pool: torch.Tensor, block_ids: torch.Tensor, blocks: torch.Tensor) -> None:
    """Write blocks into a pool in place.

    Args:
        pool: `[P, ...]`, any strides.
        block_ids: `[n]` int32, -1 skipped. An id must not come twice: programs run in no order.
        blocks: `[n, ...]` of the pool's dtype; copied first where it shares memory with the pool.
    """
    if memory_overlaps(pool, blocks):
        blocks = blocks.clone()
    shared.move_blocks(blocks, None, pool, block_ids, num_pairs=block_ids.shape[0])


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: each element width."""
    return shared.aot_variants("scatter_blocks_", has_source_ids=False, has_target_ids=True)
