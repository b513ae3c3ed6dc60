"""Gather of blocks in plain torch: the oracle of the other implementations."""

import torch

from dtk_kernels._table_checks import require_ids_in_range

__all__ = ["gather_blocks"]


def gather_blocks(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    """Return the named blocks, zeros where the id is -1."""
    require_ids_in_range("block_ids", block_ids, pool.shape[0])
    present = block_ids >= 0
    blocks = pool.new_zeros((block_ids.shape[0], *pool.shape[1:]))
    blocks[present] = pool[block_ids[present].long()]
    return blocks
