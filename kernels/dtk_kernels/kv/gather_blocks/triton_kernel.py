"""Gather of KV blocks in Triton: absent ids come out as zeros."""

import torch

from dtk_kernels.kv import triton_kernel as shared
from dtk_kernels.triton_support import KernelVariant

__all__ = ["aot_variants", "gather_blocks"]


def gather_blocks(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    """Copy the listed blocks of a pool into a new dense tensor.

    Args:
        pool: `[P, ...]`, any strides.
        block_ids: `[n]` int32, -1 absent.

    Returns:
        `[n, ...]` of the pool's dtype; zeros where the id is -1.
    """
    blocks = pool.new_empty(block_ids.shape[0], *pool.shape[1:])
    shared.move_blocks(pool, block_ids, blocks, None, num_pairs=block_ids.shape[0], zero_absent=True)
    return blocks


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: each element width."""
    return shared.aot_variants("gather_blocks", has_source_ids=True, has_target_ids=False)
