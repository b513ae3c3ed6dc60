# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Quest block scores in Triton: one program scores a run of a sequence's blocks for one output head.

Heads are reduced inside the program, so each digest is read once and no atomics are needed. For sums over
query heads the bound is linear in two vectors a KV head, sum_h max(q_h, 0) and sum_h min(q_h, 0): two
multiply-adds a channel, however many query heads share a KV head. A channel in which the query is zero adds
nothing, even where a digest is infinite.

Ids beyond the pool count as absent: a check that raises would stall the GPU.
"""

import torch
import triton.language as tl

from dtk_kernels.attention._types import HeadReduction
from dtk_kernels.triton_support import (
    KernelVariant,
    ceil_div,
    jit,
    launch,
    next_power_of_2,
    stride_unit,
    triton_type,
)

__all__ = ["aot_variants", "block_score"]

_TILE_ELEMENTS = 4096
_TILE_CHANNELS = 512  # of one block, over several heads where they are reduced together
_MEMBERS_AT_ONCE = 8  # query heads whose loads are on their way together
_SIZES = ("num_columns", "num_pool_blocks", "num_outputs", "group_size")
_DIGEST_STRIDES = tuple(f"stride_{digest}_{axis}" for digest in ("min", "max") for axis in ("block", "head"))


@jit
def _group_query(
    query: tl.tensor,
    group_size: tl.tensor,
    stride_head: tl.tensor,
    inside: tl.tensor,
    TILE_G: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Sums of positive and of negative parts over the query heads of each channel's group, in fp32.

    `query` points to each channel of the group's first head; TILE_G divides the group.
    """
    positive = tl.zeros(inside.shape, tl.float32)
    negative = tl.zeros(inside.shape, tl.float32)
    for first in range(0, group_size, TILE_G):
        for i in tl.static_range(TILE_G):
            q = tl.load(query + (first + i) * stride_head, mask=inside, other=0.0).to(tl.float32)
            positive += tl.maximum(q, 0.0, propagate_nan=tl.PropagateNan.ALL)
            negative += tl.minimum(q, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return positive, negative


@jit
def _bounds(positive: tl.tensor, negative: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """Each channel's share of the bound; 0 * inf counts as 0."""
    positive, negative = positive[None, :], negative[None, :]
    return positive * tl.where(positive != 0.0, high, 0.0) + negative * tl.where(negative != 0.0, low, 0.0)


@jit(unspecialized=(*_SIZES, "stride_table_batch", *_DIGEST_STRIDES))
def _block_score_kernel(
    query: tl.tensor,
    key_min: tl.tensor,
    key_max: tl.tensor,
    block_table: tl.tensor,
    scores: tl.tensor,
    num_columns: tl.tensor,
    num_pool_blocks: tl.tensor,
    num_outputs: tl.tensor,
    group_size: tl.tensor,
    stride_query_batch: tl.tensor,
    stride_query_head: tl.tensor,
    stride_min_block: tl.tensor,
    stride_min_head: tl.tensor,
    stride_max_block: tl.tensor,
    stride_max_head: tl.tensor,
    stride_table_batch: tl.tensor,
    HEAD_DIM: tl.constexpr,
    STRIDE_UNIT: tl.constexpr,
    TAKE_MAXIMUM: tl.constexpr,
    HEADS: tl.constexpr,
    TILE_G: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_H: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    column = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    output = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    # All channels of TILE_H heads lie side by side along one axis.
    channel = tl.arange(0, TILE_H * TILE_D) % TILE_D
    head = tl.arange(0, TILE_H * TILE_D) // TILE_D
    table_at = block_table + batch * stride_table_batch + column
    block = tl.load(table_at, mask=column < num_columns, other=-1)
    listed = (block >= 0) & (block < num_pool_blocks)
    block = tl.where(listed, block, 0).to(tl.int64)
    min_at = key_min + block * stride_min_block * STRIDE_UNIT
    max_at = key_max + block * stride_max_block * STRIDE_UNIT
    head_stride = tl.full([1], 1, tl.int64) * stride_query_head  # a long way in a large batch of long strides
    share = tl.zeros([TILE_N, TILE_H * TILE_D], tl.float32)
    total = tl.full([TILE_N], float("-inf"), tl.float32)
    for first in tl.range(0, HEADS, TILE_H, loop_unroll_factor=2):
        inside = (first + head < HEADS) & (channel < HEAD_DIM)
        kv_head = output * HEADS + first + head
        mask = listed[:, None] & inside[None, :]
        low_at = (kv_head * stride_min_head * STRIDE_UNIT + channel)[None, :]
        high_at = (kv_head * stride_max_head * STRIDE_UNIT + channel)[None, :]
        low = tl.load(min_at[:, None] + low_at, mask=mask, other=0.0).to(tl.float32)
        high = tl.load(max_at[:, None] + high_at, mask=mask, other=0.0).to(tl.float32)
        query_at = query + batch * stride_query_batch + kv_head * group_size * stride_query_head + channel
        if TAKE_MAXIMUM:
            for member in range(group_size):
                at = query_at + member * head_stride
                positive, negative = _group_query(at, 1, head_stride, inside, 1)
                bound = tl.sum(_bounds(positive, negative, low, high), axis=1)
                total = tl.maximum(total, bound, propagate_nan=tl.PropagateNan.ALL)
        else:
            positive, negative = _group_query(query_at, group_size, head_stride, inside, TILE_G)
            share += _bounds(positive, negative, low, high)
    if not TAKE_MAXIMUM:
        total = tl.sum(share, axis=1)
    # An empty block's digest is (+inf, -inf) in every channel; the first one tells.
    own = output * HEADS
    low = tl.load(min_at + own * stride_min_head * STRIDE_UNIT, mask=listed, other=0.0).to(tl.float32)
    high = tl.load(max_at + own * stride_max_head * STRIDE_UNIT, mask=listed, other=0.0).to(tl.float32)
    empty = (low == float("inf")) & (high == float("-inf"))
    total = tl.where(listed & (empty == 0), total, float("-inf"))
    tl.store(scores + (batch * num_outputs + output) * num_columns + column, total, mask=column < num_columns)


def block_score(
    query: torch.Tensor,
    key_min: torch.Tensor,
    key_max: torch.Tensor,
    block_table: torch.Tensor,
    *,
    head_reduction: HeadReduction = "layer",
) -> torch.Tensor:
    """Upper bound on q.k for each listed block, reduced over query heads.

    Args:
        query: `[B, Hq, D]`.
        key_min: `[P, Hkv, D]` channel-wise minima, D contiguous.
        key_max: `[P, Hkv, D]` channel-wise maxima, D contiguous.
        block_table: `[B, N]` int32 rows of the digests, -1 absent.
        head_reduction: "layer" sums over all query heads (G=1); "group_sum" and "group_max" reduce inside the
            group of each KV head (G=Hkv).

    Returns:
        `[B, G, N]` fp32; -inf where the table says -1.
    """
    batch, num_query_heads, head_dim = query.shape
    num_pool_blocks, num_kv_heads = key_min.shape[:2]
    num_columns = block_table.shape[1]
    num_outputs = 1 if head_reduction == "layer" else num_kv_heads
    scores = torch.empty(batch, num_outputs, num_columns, dtype=torch.float32, device=query.device)
    query = query if query.stride(2) == 1 else query.contiguous()
    block_table = block_table if block_table.stride(1) == 1 else block_table.contiguous()
    strides = *key_min.stride()[:2], *key_max.stride()[:2]
    unit = stride_unit(key_min.element_size(), *strides)
    constants = _constants(
        head_dim=head_dim,
        heads=num_kv_heads // num_outputs,
        group_size=num_query_heads // num_kv_heads,
        take_maximum=head_reduction == "group_max",
        unit=unit,
    )
    launch(
        _block_score_kernel,
        (ceil_div(num_columns, constants["TILE_N"]), num_outputs, batch),
        *(query, key_min, key_max, block_table, scores),
        *(num_columns, num_pool_blocks, num_outputs, num_query_heads // num_kv_heads),
        *query.stride()[:2],
        *(stride // unit for stride in strides),
        block_table.stride(0),
        device=query.device,
        **constants,
    )
    return scores


def _constants(
    *, head_dim: int, heads: int, group_size: int, take_maximum: bool, unit: int
) -> dict[str, int]:
    tile_d = next_power_of_2(head_dim)
    tile_h = min(next_power_of_2(heads), max(_TILE_CHANNELS // tile_d, 1))
    return {
        "HEAD_DIM": head_dim,
        "STRIDE_UNIT": unit,
        "TAKE_MAXIMUM": take_maximum,
        "HEADS": heads,
        "TILE_G": max(i for i in range(1, _MEMBERS_AT_ONCE + 1) if group_size % i == 0),
        "TILE_N": max(_TILE_ELEMENTS // (tile_h * tile_d), 1),
        "TILE_H": tile_h,
        "TILE_D": tile_d,
    }


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: query and digest dtypes alike and mixed, all reductions."""
    fp32, fp16, bf16 = torch.float32, torch.float16, torch.bfloat16
    return [
        _variant(query, digest, head_dim=head_dim, heads=heads, take_maximum=take_maximum)
        for query, digest, head_dim, heads, take_maximum in (
            (fp32, fp32, 128, 8, False),
            (fp16, fp16, 128, 8, False),
            (bf16, bf16, 128, 8, False),
            (bf16, bf16, 128, 1, False),
            (bf16, bf16, 64, 1, True),
            (bf16, bf16, 256, 8, False),
            (fp32, bf16, 128, 1, True),
            (bf16, bf16, 80, 3, False),
        )
    ]


def _variant(
    query: torch.dtype, digest: torch.dtype, *, head_dim: int, heads: int, take_maximum: bool
) -> KernelVariant:
    kinds = triton_type(query), triton_type(digest)
    reduction = "max" if take_maximum else "sum"
    return KernelVariant(
        name=f"block_score[{','.join(kinds)},d{head_dim},h{heads},{reduction}]",
        kernel=_block_score_kernel,
        types={
            "query": f"*{kinds[0]}",
            **dict.fromkeys(("key_min", "key_max"), f"*{kinds[1]}"),
            "block_table": "*i32",
            "scores": "*fp32",
        },
        constants=_constants(
            head_dim=head_dim,
            heads=heads,
            group_size=4,
            take_maximum=take_maximum,
            unit=stride_unit(digest.itemsize, head_dim),
        ),
        aligned=frozenset({"stride_query_batch", "stride_query_head"}),
    )
