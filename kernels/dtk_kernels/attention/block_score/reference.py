"""Block score in plain torch: the oracle of the other implementations."""

import torch

from dtk_kernels._table_checks import require_ids_in_range
from dtk_kernels.attention._types import HeadReduction

__all__ = ["block_score"]


def block_score(
    query: torch.Tensor,
    key_min: torch.Tensor,
    key_max: torch.Tensor,
    block_table: torch.Tensor,
    *,
    head_reduction: HeadReduction = "layer",
) -> torch.Tensor:
    """Return sum_d max(q_d * min_d, q_d * max_d) for every listed block, reduced over query heads."""
    num_pool_blocks, num_kv_heads, head_dim = key_min.shape
    require_ids_in_range("block_table", block_table, num_pool_blocks)
    batch, num_blocks = block_table.shape
    listed = block_table >= 0
    lowest = key_min.new_zeros((batch, num_blocks, num_kv_heads, head_dim), dtype=torch.float32)
    highest = lowest.clone()
    lowest[listed] = key_min[block_table[listed].long()].float()
    highest[listed] = key_max[block_table[listed].long()].float()

    group_size = query.shape[1] // num_kv_heads
    grouped = query.float().reshape(batch, 1, num_kv_heads, group_size, head_dim)
    bounds = torch.maximum(grouped * lowest[:, :, :, None], grouped * highest[:, :, :, None]).sum(dim=-1)
    empty = (lowest[..., 0] == float("inf")) & (highest[..., 0] == float("-inf"))
    bounds = bounds.masked_fill(empty[..., None], float("-inf"))  # [batch, num_blocks, Hkv, group]

    if head_reduction == "layer":
        scores = bounds.sum(dim=(2, 3))[:, None]
    elif head_reduction == "group_sum":
        scores = bounds.sum(dim=3).transpose(1, 2)
    else:
        scores = bounds.amax(dim=3).transpose(1, 2)
    return scores.masked_fill(~listed[:, None], float("-inf")).contiguous()
