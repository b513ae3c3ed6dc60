# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Sparse decode attention in Triton: split over the block table, all query heads of a KV head in one program.

A program takes one split of the table, one KV head and one sequence, and walks the split in tiles of whole
blocks (64 tokens cover two blocks of 32), or a block in tiles. K and V come in by asynchronous copies, up to
two tiles ahead, and are read once; an online softmax in base 2 gives a normalised partial result, and
`merge_partials` joins the splits in one more launch (FlashDecoding). Letting the last program of a row join
them instead would need a counter that somebody zeroes, which is a launch again, or state kept between calls.

Query heads fill the 16 rows of a tensor-core product. A group of one fills one row of them, which costs
nothing that shows: the products of a tile take a fraction of the time in which memory delivers it.

Precision: when query and K/V share a 16-bit dtype, products are taken in it and accumulated in fp32, and
the softmax weights are split into two terms of that dtype, so that they keep twice its precision. Every
other combination is computed from fp32 operands as three products of TF32 terms, which leave about 2**-21.

Ids beyond the pool count as absent: a check that raises would stall the GPU.
"""

import math

import torch
import triton.language as tl

from dtk_kernels.attention.merge_partials.triton_kernel import merge_partials
from dtk_kernels.attention.sparse_decode_attention.launch_plan import (
    Pipeline,
    Tiles,
    columns_for_each_split,
    tiles_for,
)
from dtk_kernels.attention.triton_decode import (
    STRIDES_OF_TABLES,
    empty_result,
    last_dim_dense,
    listed_tokens,
    softmax_step,
    store_lse,
    table_strides,
    tile_constants,
    weighted_values,
)
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, stride_unit, triton_type

__all__ = ["aot_variants", "sparse_decode_attention"]

_LN_2 = math.log(2.0)
_AXES = ("block", "head", "token")
_STRIDES = (
    *(f"stride_{pool}_{axis}" for pool in ("key", "value") for axis in _AXES),
    *STRIDES_OF_TABLES,
)
_SIZES = ("num_columns", "num_pool_blocks", "columns_per_split", "num_query_heads", "group_size")


@jit(unspecialized=(*_STRIDES, *_SIZES))
def _sparse_decode_attention_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    block_table: tl.tensor,
    block_lengths: tl.tensor,
    outputs: tl.tensor,
    lses: tl.tensor,
    scale_log2: tl.tensor,
    num_columns: tl.tensor,
    num_pool_blocks: tl.tensor,
    columns_per_split: tl.tensor,
    num_query_heads: tl.tensor,
    group_size: tl.tensor,
    stride_query_batch: tl.tensor,
    stride_query_head: tl.tensor,
    stride_key_block: tl.tensor,
    stride_key_head: tl.tensor,
    stride_key_token: tl.tensor,
    stride_value_block: tl.tensor,
    stride_value_head: tl.tensor,
    stride_value_token: tl.tensor,
    stride_table_batch: tl.tensor,
    stride_table_head: tl.tensor,
    stride_lengths_batch: tl.tensor,
    stride_lengths_head: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    STRIDE_UNIT: tl.constexpr,
    SAME_STRIDES: tl.constexpr,
    IN_FP32: tl.constexpr,
    HEAD_CHUNKS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES_PER_BLOCK: tl.constexpr,
    SCALAR_LOOKUP: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_T: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    split = tl.program_id(0)
    kv_head = (tl.program_id(1) // HEAD_CHUNKS).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    member = (tl.program_id(1) % HEAD_CHUNKS) * TILE_M + tl.arange(0, TILE_M)
    channel = tl.arange(0, TILE_D)
    in_dim = (channel < HEAD_DIM)[None, :]
    query_head = kv_head * group_size + member
    row_mask = (member < group_size)[:, None] & in_dim
    query_at = batch * stride_query_batch + query_head[:, None] * stride_query_head + channel[None, :]
    q = tl.load(query + query_at, mask=row_mask, other=0.0)
    if IN_FP32:
        q = q.to(tl.float32)

    first = split * columns_per_split
    columns_here = tl.minimum(columns_per_split, num_columns - first)
    table = block_table + batch * stride_table_batch + kv_head * stride_table_head + first
    lengths = block_lengths + batch * stride_lengths_batch + kv_head * stride_lengths_head + first
    maximum = tl.full([TILE_M], float("-inf"), tl.float32)
    weight_sum = tl.zeros([TILE_M], tl.float32)
    total = tl.zeros([TILE_M, TILE_D], tl.float32)
    for tile in range(tl.cdiv(columns_here, COLUMNS) * TILES_PER_BLOCK):
        block, slot, live = listed_tokens(
            table, lengths, tile, columns_here, num_pool_blocks, BLOCK_SIZE, COLUMNS, TILES_PER_BLOCK,
            SCALAR_LOOKUP, TILE_T,
        )  # fmt: skip
        mask = live[:, None] & in_dim
        at = block * stride_key_block + kv_head * stride_key_head + slot * stride_key_token
        at = (at * STRIDE_UNIT)[:, None] + channel[None, :]
        k = tl.load(keys + at, mask=mask, other=0.0)
        if IN_FP32:
            k = k.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale_log2
        score = tl.where(live[None, :], score, float("-inf"))
        weights, keep, maximum, weight_sum = softmax_step(score, maximum, weight_sum)
        if not SAME_STRIDES:
            at = block * stride_value_block + kv_head * stride_value_head + slot * stride_value_token
            at = (at * STRIDE_UNIT)[:, None] + channel[None, :]
        v = tl.load(values + at, mask=mask, other=0.0)
        total = weighted_values(weights, v, total * keep[:, None], IN_FP32)

    row = (split.to(tl.int64) * tl.num_programs(2) + batch) * num_query_heads + query_head
    divisor = store_lse(lses, row, member < group_size, maximum, weight_sum)
    tl.store(outputs + row[:, None] * HEAD_DIM + channel[None, :], total / divisor[:, None], mask=row_mask)


def sparse_decode_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    scale: float | None = None,
    columns_per_split: int | None = None,
    pipeline: Pipeline | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one query token a sequence over the listed blocks.

    Args:
        query: `[B, Hq, D]`, fp32, fp16 or bf16.
        keys: `[P, Hkv, S, D]` pool, any strides with D contiguous.
        values: `[P, Hkv, S, D]` pool of the keys' dtype.
        block_table: `[B, G, N]` int32 rows of the pools, -1 absent; G is 1 or Hkv.
        block_lengths: `[B, G, N]` int32 valid tokens of each listed block.
        scale: factor on q.k; 1/sqrt(D) by default.
        columns_per_split: table columns a program walks; by default enough programs to fill the GPU.
        pipeline: how a program walks them; by default what the launch plan says.

    Returns:
        `(output [B, Hq, D] fp32, natural-log lse [B, Hq] fp32)`; (0, -inf) for an empty selection.
    """
    batch, num_query_heads, head_dim = query.shape
    num_pool_blocks, num_kv_heads, block_size = keys.shape[:3]
    num_columns = block_table.shape[2]
    if num_columns == 0 or block_size == 0:
        return empty_result(query)
    group_size = num_query_heads // num_kv_heads
    query, block_table, block_lengths = map(last_dim_dense, (query, block_table, block_lengths))
    tiles = tiles_for(
        query.dtype,
        keys.dtype,
        head_dim=head_dim,
        block_size=block_size,
        group_size=group_size,
        pipeline=pipeline,
    )
    if columns_per_split is None:
        programs = batch * num_kv_heads * tiles.head_chunks
        columns_per_split = columns_for_each_split(num_columns, tiles, programs, query.device)
    splits = ceil_div(num_columns, columns_per_split)
    outputs = torch.empty(splits, batch, num_query_heads, head_dim, dtype=torch.float32, device=query.device)
    lses = torch.empty(splits, batch, num_query_heads, dtype=torch.float32, device=query.device)
    unit = stride_unit(keys.element_size(), *keys.stride()[:3], *values.stride()[:3])
    launch(
        _sparse_decode_attention_kernel,
        (splits, num_kv_heads * tiles.head_chunks, batch),
        *(query, keys, values, block_table, block_lengths, outputs, lses),
        (head_dim**-0.5 if scale is None else scale) / _LN_2,
        *(num_columns, num_pool_blocks, columns_per_split, num_query_heads, group_size),
        *query.stride()[:2],
        *(stride // unit for pool in (keys, values) for stride in pool.stride()[:3]),
        *table_strides(block_table),
        *table_strides(block_lengths),
        device=query.device,
        **_constants(
            tiles,
            head_dim=head_dim,
            block_size=block_size,
            unit=unit,
            same_strides=keys.stride() == values.stride(),
        ),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    return (outputs[0], lses[0]) if splits == 1 else merge_partials(outputs, lses)


def _constants(
    tiles: Tiles, *, head_dim: int, block_size: int, unit: int, same_strides: bool
) -> dict[str, object]:
    return {
        "HEAD_DIM": head_dim,
        "BLOCK_SIZE": block_size,
        "STRIDE_UNIT": unit,
        "SAME_STRIDES": same_strides,
        "IN_FP32": tiles.in_fp32,
        **tile_constants(tiles),
    }


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: every dtype pairing, common and odd block and head sizes."""
    fp32, fp16, bf16 = torch.float32, torch.float16, torch.bfloat16
    return [
        _variant(query, pool, head_dim=head_dim, block_size=block_size, group_size=group_size)
        for query, pool, head_dim, block_size, group_size in (
            (fp32, fp32, 128, 32, 4),
            (fp16, fp16, 128, 32, 4),
            (bf16, bf16, 64, 16, 3),
            (bf16, bf16, 128, 32, 8),
            (bf16, bf16, 256, 64, 1),
            (bf16, bf16, 96, 24, 32),
            (bf16, bf16, 128, 1, 4),
            (fp32, fp32, 256, 32, 8),
            (fp32, bf16, 128, 32, 4),
            (bf16, fp16, 128, 32, 4),
        )
    ]


def _variant(
    query: torch.dtype, pool: torch.dtype, *, head_dim: int, block_size: int, group_size: int
) -> KernelVariant:
    tiles = tiles_for(query, pool, head_dim=head_dim, block_size=block_size, group_size=group_size)
    kinds = triton_type(query), triton_type(pool)
    return KernelVariant(
        name=f"sparse_decode_attention[{','.join(kinds)},d{head_dim},s{block_size},g{group_size}]",
        kernel=_sparse_decode_attention_kernel,
        types={
            "query": f"*{kinds[0]}",
            **dict.fromkeys(("keys", "values"), f"*{kinds[1]}"),
            **dict.fromkeys(("block_table", "block_lengths"), "*i32"),
            **dict.fromkeys(("outputs", "lses"), "*fp32"),
            "scale_log2": "fp32",
        },
        constants=_constants(
            tiles,
            head_dim=head_dim,
            block_size=block_size,
            unit=stride_unit(pool.itemsize, head_dim),
            same_strides=True,
        ),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        aligned=frozenset({"stride_query_batch", "stride_query_head"}),
    )
