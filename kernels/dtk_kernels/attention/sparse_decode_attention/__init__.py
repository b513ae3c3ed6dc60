"""Sparse decode attention: one query token a sequence attends to the listed blocks of a pool.

It returns a partial result (output and natural-log log-sum-exp) as FlashAttention's split over keys does, so
that several pools, or a GPU and a host, can share one softmax (ScoutAttention, arXiv 2603.27138, section 3).
No attention sinks, soft-capping, sliding windows or position biases.
"""

import torch

from dtk_kernels._checks import (
    FLOAT_DTYPES,
    require_contiguous_last_dim,
    require_dtype,
    require_finite,
    require_grouped_heads,
    require_same_device,
    require_same_dtype,
    require_shapes,
)
from dtk_kernels._operation import Operation

__all__ = ["sparse_decode_attention"]


def sparse_decode_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    scale: float | None = None,
    implementation: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to the first `block_lengths` tokens of every listed block; nothing else in the pool is read.

    Args:
        query: `[batch, num_query_heads, head_dim]`, float32, float16 or bfloat16.
        keys: Pool `[num_pool_blocks, num_kv_heads, block_size, head_dim]`, float32, float16 or bfloat16; any
            strides as long as head_dim is contiguous.
        values: Like `keys`, same shape and dtype.
        block_table: int32 `[batch, num_groups, num_blocks]` of pool blocks, -1 for none. num_groups is 1 (one
            list for all heads) or num_kv_heads (a list for each KV head).
        block_lengths: int32, shape of `block_table`: how many tokens of the block count. Not looked at where
            the table says -1; 0 skips the block.
        scale: Factor of the scores before the softmax; None means 1 / sqrt(head_dim).
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        `(output, lse)`: float32 `[batch, num_query_heads, head_dim]` and `[batch, num_query_heads]`, the
        natural-log log-sum-exp of the scaled scores. An empty selection gives (0, -inf).

    Raises:
        TypeError: scale is no number.
        ValueError: A shape, dtype, device or stride does not fit, scale is not finite, the table names a
            block that the pool does not have, or a length is not in 0..block_size. What tables hold is not
            checked on a GPU, which must not wait: such a block is skipped, such a length is the nearest in
            range.
        NotImplementedError: The named implementation is missing here.
    """
    result: tuple[torch.Tensor, torch.Tensor] = OPERATION(
        implementation, query, keys, values, block_table, block_lengths, scale=scale
    )
    return result


def check(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    scale: float | None = None,
) -> None:
    """Raise ValueError where the arguments' metadata do not fit."""
    sizes = require_shapes(
        query=(query, ("B", "Hq", "D")),
        keys=(keys, ("P", "Hkv", "S", "D")),
        values=(values, ("P", "Hkv", "S", "D")),
        block_table=(block_table, ("B", "G", "N")),
        block_lengths=(block_lengths, ("B", "G", "N")),
    )
    require_grouped_heads(sizes["Hq"], sizes["Hkv"])
    if sizes["G"] not in (1, sizes["Hkv"]):
        raise ValueError(
            f"block_table has {sizes['G']} groups; one for all heads or one for each of the {sizes['Hkv']} KV"
            " heads is allowed"
        )
    require_dtype(FLOAT_DTYPES, query=query, keys=keys)
    require_same_dtype(keys=keys, values=values)
    require_dtype((torch.int32,), block_table=block_table, block_lengths=block_lengths)
    require_same_device(
        query=query, keys=keys, values=values, block_table=block_table, block_lengths=block_lengths
    )
    require_contiguous_last_dim(query=query, keys=keys, values=values)
    require_finite(scale=scale)


def _fake(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    output = query.new_empty(query.shape, dtype=torch.float32)
    return output, query.new_empty(query.shape[:2], dtype=torch.float32)


OPERATION = Operation(
    "sparse_decode_attention",
    schema=(
        "(Tensor query, Tensor keys, Tensor values, Tensor block_table, Tensor block_lengths, *,"
        " float? scale=None) -> (Tensor, Tensor)"
    ),
    check=check,
    fake=_fake,
)
