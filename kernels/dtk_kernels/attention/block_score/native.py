"""Block score by the compiled module."""

from typing import get_args

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view
from dtk_kernels.attention._types import HeadReduction

__all__ = ["block_score", "prepare"]


def block_score(
    query: torch.Tensor,
    key_min: torch.Tensor,
    key_max: torch.Tensor,
    block_table: torch.Tensor,
    *,
    head_reduction: HeadReduction = "layer",
) -> torch.Tensor:
    """Return sum_d max(q_d * min_d, q_d * max_d) for every listed block, reduced over query heads."""
    call = prepare(query, key_min, key_max, block_table, head_reduction=head_reduction)
    _native.block_score(*call.arguments)
    return call.result


def prepare(
    query: torch.Tensor,
    key_min: torch.Tensor,
    key_max: torch.Tensor,
    block_table: torch.Tensor,
    *,
    head_reduction: HeadReduction = "layer",
) -> NativeCall[torch.Tensor]:
    """Return the call that fills the scores."""
    require_cpu(query=query)
    table = block_table.contiguous()
    num_groups = 1 if head_reduction == "layer" else key_min.shape[1]
    scores = query.new_empty((table.shape[0], num_groups, table.shape[1]), dtype=torch.float32)
    reduction = get_args(HeadReduction).index(head_reduction)
    arguments = (view(query), view(key_min), view(key_max), view(table), reduction, view(scores))
    return NativeCall(arguments, scores, (query, key_min, key_max, table, scores))
