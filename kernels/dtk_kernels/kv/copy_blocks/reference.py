"""Copy of blocks between pools in plain torch: the oracle of the other implementations."""

import torch

from dtk_kernels._table_checks import require_distinct_ids, require_ids_in_range

__all__ = ["check_ids", "copy_blocks_"]


def copy_blocks_(
    source_pool: torch.Tensor, source_ids: torch.Tensor, target_pool: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """Copy each pair's block, reading all before writing any; pools may be on different devices."""
    check_ids(source_pool, source_ids, target_pool, target_ids)
    both = _both_present(source_ids, target_ids)
    blocks = source_pool[source_ids[both].long()]
    target_pool[target_ids[both.to(target_ids.device)].long()] = blocks.to(target_pool.device)


def check_ids(
    source_pool: torch.Tensor, source_ids: torch.Tensor, target_pool: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """Raise ValueError for an id outside its pool, or a target that would be written twice."""
    require_ids_in_range("source_ids", source_ids, source_pool.shape[0])
    require_ids_in_range("target_ids", target_ids, target_pool.shape[0])
    written = target_ids[_both_present(source_ids, target_ids).to(target_ids.device)]
    require_distinct_ids("target_ids", written)


def _both_present(source_ids: torch.Tensor, target_ids: torch.Tensor) -> torch.Tensor:
    return (source_ids >= 0) & (target_ids.to(source_ids.device) >= 0)
