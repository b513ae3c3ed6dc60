# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Sparse decode attention in Triton: split over the block table, all query heads of a KV head in one program.

A program takes one split of the table, one KV head and one sequence. It walks the split's tokens in tiles
that do not depend on the block size (64 tokens cover four blocks of 16), with an online softmax in base
2, and writes a normalised partial result; `merge_partials` joins the splits (FlashDecoding).

Precision: when query and K/V share a 16-bit dtype, products are taken in it and accumulated in fp32, and
the softmax weights are split into two terms of that dtype, so that they keep twice its precision; tensor
cores idle in decode anyway. Every other combination is computed in fp32 without TF32.

Ids beyond the pool count as absent: a check that raises would stall the GPU.
"""

import math

import torch
import triton.language as tl

from dtk_kernels.attention.merge_partials.triton_kernel import merge_partials
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2

__all__ = ["aot_variants", "sparse_decode_attention"]

_LN_2 = math.log(2.0)
_MIN_DOT = 16  # tl.dot wants at least 16 rows, columns and summands


@jit
def _load_tile(
    pool: tl.tensor, base: tl.tensor, channel: tl.tensor, mask: tl.tensor, IN_FP32: tl.constexpr
) -> tl.tensor:
    """One operand tile; what the mask excludes is 0 and is not read."""
    tile = tl.load(pool + base + channel, mask=mask, other=0.0)
    return tile.to(tl.float32) if IN_FP32 else tile


@jit
def _weighted_values(
    weights: tl.tensor, values: tl.tensor, total: tl.tensor, IN_FP32: tl.constexpr
) -> tl.tensor:
    """`total + weights @ values` with fp32 weights, whatever the values' dtype."""
    if IN_FP32:
        total = tl.dot(weights, values, total, input_precision="ieee")
    else:
        high = weights.to(values.dtype)
        low = (weights - high.to(tl.float32)).to(values.dtype)
        total = tl.dot(high, values, total)
        total = tl.dot(low, values, total)
    return total


@jit
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
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_T: tl.constexpr,
    TILE_D: tl.constexpr,
    IN_FP32: tl.constexpr,
) -> None:
    split = tl.program_id(0)
    kv_head = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    member = tl.arange(0, TILE_M)
    channel = tl.arange(0, TILE_D)
    query_head = kv_head * group_size + member
    row_mask = (member < group_size)[:, None] & (channel < HEAD_DIM)[None, :]
    query_at = batch * stride_query_batch + query_head[:, None] * stride_query_head
    q = _load_tile(query, query_at, channel[None, :], row_mask, IN_FP32)

    first = split * columns_per_split
    num_tokens = (tl.minimum(first + columns_per_split, num_columns) - first) * BLOCK_SIZE
    table_at = batch * stride_table_batch + kv_head * stride_table_head + first
    maximum = tl.full([TILE_M], float("-inf"), tl.float32)
    weight_sum = tl.zeros([TILE_M], tl.float32)
    total = tl.zeros([TILE_M, TILE_D], tl.float32)
    for start in range(0, num_tokens, TILE_T):
        token = start + tl.arange(0, TILE_T)
        column = token // BLOCK_SIZE
        slot = token % BLOCK_SIZE
        in_split = token < num_tokens
        block = tl.load(block_table + table_at + column, mask=in_split, other=-1)
        length = tl.load(block_lengths + table_at + column, mask=in_split, other=0)
        # Absent blocks and unfilled slots are masked out of the loads: whatever lies there cannot leak.
        live = (block >= 0) & (block < num_pool_blocks) & (slot < length)
        block = block.to(tl.int64)
        key_at = block * stride_key_block + kv_head * stride_key_head + slot * stride_key_token
        key_mask = (channel < HEAD_DIM)[:, None] & live[None, :]
        k = _load_tile(keys, key_at[None, :], channel[:, None], key_mask, IN_FP32)
        score = tl.dot(q, k, input_precision="ieee") * scale_log2
        score = tl.where(live[None, :], score, float("-inf"))

        new_maximum = tl.maximum(maximum, tl.max(score, axis=1))
        # -inf - -inf is NaN; before the first live token any finite reference gives the weights 0.
        reference = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        keep = tl.exp2(maximum - reference)
        weights = tl.exp2(score - reference[:, None])
        weight_sum = weight_sum * keep + tl.sum(weights, axis=1)

        value_at = block * stride_value_block + kv_head * stride_value_head + slot * stride_value_token
        value_mask = live[:, None] & (channel < HEAD_DIM)[None, :]
        v = _load_tile(values, value_at[:, None], channel[None, :], value_mask, IN_FP32)
        total = _weighted_values(weights, v, total * keep[:, None], IN_FP32)
        maximum = new_maximum

    empty = weight_sum == 0.0
    divisor = tl.where(empty, 1.0, weight_sum)
    row = (split.to(tl.int64) * tl.num_programs(2) + batch) * num_query_heads + query_head
    tl.store(outputs + row[:, None] * HEAD_DIM + channel[None, :], total / divisor[:, None], mask=row_mask)
    ln_2: tl.constexpr = tl.constexpr(0.6931471805599453)
    lse = tl.where(empty, float("-inf"), (maximum + tl.log2(divisor)) * ln_2)
    tl.store(lses + row, lse, mask=member < group_size)


def _computes_in_fp32(query: torch.dtype, pool: torch.dtype) -> bool:
    return query != pool or pool == torch.float32


def _tile_tokens(tile_d: int, in_fp32: bool) -> int:
    """Tokens a tile: 16 KiB of K in 16 bits, 8 KiB in fp32, where the products live in registers."""
    wanted = 2048 // tile_d if in_fp32 else 8192 // tile_d
    return min(max(wanted, _MIN_DOT), 128)


def _num_warps(in_fp32: bool) -> int:
    # With 4 warps the fp32 products spill registers, on every target.
    return 8 if in_fp32 else 4


def _columns_per_split(num_columns: int, tile_columns: int, programs: int, device: torch.device) -> int:
    """Columns a program walks: two programs a multiprocessor if there is a tile of work for each."""
    if device.type != "cuda":
        return num_columns
    wanted = 2 * torch.cuda.get_device_properties(device).multi_processor_count
    splits = max(wanted // programs, 1)
    return max(ceil_div(num_columns, splits), tile_columns)


def sparse_decode_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    scale: float | None = None,
    columns_per_split: int | None = None,
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

    Returns:
        `(output [B, Hq, D] fp32, natural-log lse [B, Hq] fp32)`; (0, -inf) for an empty selection.
    """
    batch, num_query_heads, head_dim = query.shape
    num_kv_heads = keys.shape[1]
    block_size = max(keys.shape[2], 1)  # blocks without tokens divide nothing
    num_table_heads, num_columns = block_table.shape[1:]
    query = query if query.stride(2) == 1 else query.contiguous()
    block_table, block_lengths = block_table.contiguous(), block_lengths.contiguous()
    in_fp32 = _computes_in_fp32(query.dtype, keys.dtype)
    tile_d = next_power_of_2(head_dim, at_least=_MIN_DOT)
    tile_t = _tile_tokens(tile_d, in_fp32)
    if columns_per_split is None:
        programs = max(batch * num_kv_heads, 1)
        columns_per_split = _columns_per_split(
            num_columns, ceil_div(tile_t, block_size), programs, query.device
        )
    splits = max(ceil_div(num_columns, max(columns_per_split, 1)), 1)
    outputs = torch.empty(splits, batch, num_query_heads, head_dim, dtype=torch.float32, device=query.device)
    lses = torch.empty(splits, batch, num_query_heads, dtype=torch.float32, device=query.device)
    launch(
        _sparse_decode_attention_kernel,
        (splits, num_kv_heads, batch),
        query,
        keys,
        values,
        block_table,
        block_lengths,
        outputs,
        lses,
        (head_dim**-0.5 if scale is None else scale) / _LN_2,
        num_columns,
        keys.shape[0],
        columns_per_split,
        num_query_heads,
        num_query_heads // num_kv_heads,
        *query.stride()[:2],
        *keys.stride()[:3],
        *values.stride()[:3],
        num_table_heads * num_columns,
        num_columns if num_table_heads > 1 else 0,
        device=query.device,
        BLOCK_SIZE=block_size,
        TILE_M=next_power_of_2(num_query_heads // num_kv_heads, at_least=_MIN_DOT),
        TILE_T=tile_t,
        HEAD_DIM=head_dim,
        TILE_D=tile_d,
        IN_FP32=in_fp32,
        num_warps=_num_warps(in_fp32),
        num_stages=2,
    )
    return (outputs[0], lses[0]) if splits == 1 else merge_partials(outputs, lses)


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: every dtype pairing, common and odd block and head sizes."""
    return [
        _variant(query, pool, head_dim=head_dim, block_size=block_size, group_size=group_size)
        for query, pool, head_dim, block_size, group_size in (
            ("fp32", "fp32", 128, 32, 4),
            ("fp16", "fp16", 128, 32, 4),
            ("bf16", "bf16", 64, 16, 3),
            ("bf16", "bf16", 128, 32, 8),
            ("bf16", "bf16", 256, 64, 1),
            ("bf16", "bf16", 96, 24, 32),
            ("fp32", "fp32", 256, 32, 8),
            ("fp32", "bf16", 128, 32, 4),
            ("bf16", "fp16", 128, 32, 4),
            ("fp16", "fp32", 64, 32, 4),
        )
    ]


def _variant(query: str, pool: str, *, head_dim: int, block_size: int, group_size: int) -> KernelVariant:
    in_fp32 = query != pool or pool == "fp32"
    tile_d = next_power_of_2(head_dim, at_least=_MIN_DOT)
    return KernelVariant(
        name=f"sparse_decode_attention[{query},{pool},d{head_dim},s{block_size},g{group_size}]",
        kernel=_sparse_decode_attention_kernel,
        types={
            "query": f"*{query}",
            "keys": f"*{pool}",
            "values": f"*{pool}",
            "block_table": "*i32",
            "block_lengths": "*i32",
            "outputs": "*fp32",
            "lses": "*fp32",
            "scale_log2": "fp32",
        },
        constants={
            "BLOCK_SIZE": block_size,
            "TILE_M": next_power_of_2(group_size, at_least=_MIN_DOT),
            "TILE_T": _tile_tokens(tile_d, in_fp32),
            "HEAD_DIM": head_dim,
            "TILE_D": tile_d,
            "IN_FP32": in_fp32,
        },
        num_warps=_num_warps(in_fp32),
        aligned=frozenset(
            f"stride_{pool}_{axis}" for pool in ("key", "value") for axis in ("block", "head", "token")
        ),
    )
