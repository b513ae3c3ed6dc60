"""Block score: an upper bound of a query's attention score in a block (Quest, arXiv 2406.10774, section 3.3).

Quest scores for multi-head attention; the reductions over grouped query heads are ours.
"""

from typing import get_args

import torch

from dtk_kernels._checks import (
    FLOAT_DTYPES,
    require_contiguous_last_dim,
    require_dtype,
    require_grouped_heads,
    require_same_device,
    require_same_dtype,
    require_shapes,
)
from dtk_kernels._operation import Operation
from dtk_kernels.attention._types import HeadReduction

__all__ = ["HeadReduction", "block_score"]


def block_score(
    query: torch.Tensor,
    key_min: torch.Tensor,
    key_max: torch.Tensor,
    block_table: torch.Tensor,
    *,
    head_reduction: HeadReduction = "layer",
    implementation: str | None = None,
) -> torch.Tensor:
    """Score every listed block by its digest: the sum over channels of max(q * min, q * max).

    That bounds q . k from above for every key k of the block (unscaled: multiply by the softmax scale to
    compare with attention scores). The digest of an empty block (+inf, -inf) scores -inf.

    Args:
        query: `[batch, num_query_heads, head_dim]`, float32, float16 or bfloat16.
        key_min: `[num_pool_blocks, num_kv_heads, head_dim]`, from `block_digest`.
        key_max: Like `key_min`, in the same dtype, nowhere smaller.
        block_table: int32 `[batch, num_blocks]` of pool blocks; -1 scores -inf.
        head_reduction: "layer" sums over all query heads (num_groups = 1); "group_sum" and "group_max" reduce
            over the query heads that share a KV head (num_groups = num_kv_heads).
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        float32 `[batch, num_groups, num_blocks]`.

    Raises:
        ValueError: A shape, dtype, device, stride or name does not fit, or the table names a block that the
            pool does not have (not checked on a GPU, which must not wait: it scores -inf).
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(
        implementation, query, key_min, key_max, block_table, head_reduction=head_reduction
    )
    return result


def _check(
    query: torch.Tensor,
    key_min: torch.Tensor,
    key_max: torch.Tensor,
    block_table: torch.Tensor,
    *,
    head_reduction: str = "layer",
) -> None:
    sizes = require_shapes(
        query=(query, ("B", "Hq", "D")),
        key_min=(key_min, ("P", "Hkv", "D")),
        key_max=(key_max, ("P", "Hkv", "D")),
        block_table=(block_table, ("B", "N")),
    )
    require_grouped_heads(sizes["Hq"], sizes["Hkv"])
    require_dtype(FLOAT_DTYPES, query=query, key_min=key_min)
    require_same_dtype(key_min=key_min, key_max=key_max)
    require_dtype((torch.int32,), block_table=block_table)
    require_same_device(query=query, key_min=key_min, key_max=key_max, block_table=block_table)
    require_contiguous_last_dim(query=query, key_min=key_min, key_max=key_max)
    if head_reduction not in get_args(HeadReduction):
        raise ValueError(
            f"head_reduction must be one of {', '.join(get_args(HeadReduction))}, got {head_reduction!r}"
        )


def _fake(
    query: torch.Tensor,
    key_min: torch.Tensor,
    key_max: torch.Tensor,
    block_table: torch.Tensor,
    *,
    head_reduction: str = "layer",
) -> torch.Tensor:
    num_groups = 1 if head_reduction == "layer" else key_min.shape[1]
    return query.new_empty((query.shape[0], num_groups, block_table.shape[1]), dtype=torch.float32)


OPERATION = Operation(
    "block_score",
    schema=(
        "(Tensor query, Tensor key_min, Tensor key_max, Tensor block_table, *,"
        ' str head_reduction="layer") -> Tensor'
    ),
    check=_check,
    fake=_fake,
)
