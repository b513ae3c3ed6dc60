"""Copy of blocks between pools by the compiled module, on the calling thread."""

import torch

from dtk_kernels import _native
from dtk_kernels._memory import memory_overlaps
from dtk_kernels._native_calls import require_cpu, view

__all__ = ["copy_blocks_"]


def copy_blocks_(
    source_pool: torch.Tensor, source_ids: torch.Tensor, target_pool: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """Copy each pair's block, reading all before writing any."""
    require_cpu(source_pool=source_pool, target_pool=target_pool)
    source_ids, target_ids = source_ids.contiguous(), target_ids.contiguous()
    shared_memory = memory_overlaps(source_pool, target_pool)
    _native.copy_blocks(
        view(source_pool), view(source_ids), view(target_pool), view(target_ids), shared_memory
    )
