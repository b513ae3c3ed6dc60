"""Scatter of blocks in plain torch: the oracle of the other implementations."""

import torch

from dtk_kernels._table_checks import require_distinct_ids, require_ids_in_range

__all__ = ["scatter_blocks_"]


def scatter_blocks_(pool: torch.Tensor, block_ids: torch.Tensor, blocks: torch.Tensor) -> None:
    """Write each block to its place in the pool, none where the id is -1."""
    require_ids_in_range("block_ids", block_ids, pool.shape[0])
    require_distinct_ids("block_ids", block_ids)
    present = block_ids >= 0
    pool[block_ids[present].long()] = blocks[present]
