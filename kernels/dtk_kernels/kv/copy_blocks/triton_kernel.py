"""Copy of KV blocks between pools in Triton: a pair with an absent id on either side is skipped."""

import torch

from dtk_kernels.kv import triton_kernel as shared
from dtk_kernels.kv.copy_blocks.reference import copy_blocks_ as across_devices
from dtk_kernels.kv.gather_blocks.triton_kernel import gather_blocks
from dtk_kernels.triton_support import KernelVariant

__all__ = ["aot_variants", "copy_blocks_"]


def copy_blocks_(
    source_pool: torch.Tensor,
    source_ids: torch.Tensor,
    target_pool: torch.Tensor,
    target_ids: torch.Tensor,
) -> None:
    """Copy block `source_ids[i]` of one pool to block `target_ids[i]` of another, in place.

    Args:
        source_pool: `[P, ...]`, any strides.
        source_ids: `[n]` int32, -1 absent.
        target_pool: `[Q, ...]` of the source's dtype and inner shape, any strides. It may share memory
            with the source: every block is then read before any is written. On another device torch copies.
        target_ids: `[n]` int32, -1 absent. An id must not come twice: programs run in no order.
    """
    if source_pool.device != target_pool.device:
        across_devices(source_pool, source_ids, target_pool, target_ids)
        return
    num_pairs = source_ids.shape[0]
    if source_pool.untyped_storage().data_ptr() != target_pool.untyped_storage().data_ptr():
        shared.move_blocks(source_pool, source_ids, target_pool, target_ids, num_pairs=num_pairs)
        return
    blocks = gather_blocks(source_pool, source_ids)
    present = torch.where(source_ids < 0, source_ids, target_ids)
    shared.move_blocks(blocks, None, target_pool, present, num_pairs=num_pairs)


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: each element width."""
    return shared.aot_variants("copy_blocks_", has_source_ids=True, has_target_ids=True)
