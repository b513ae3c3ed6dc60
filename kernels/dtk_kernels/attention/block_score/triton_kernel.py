# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Quest block scores in Triton: one program scores a run of a sequence's blocks for one output head.

Heads are reduced inside the program, so each digest is read once and no atomics are needed. Ids beyond
the pool count as absent: a check that raises would stall the GPU.
"""

import torch
import triton.language as tl

from dtk_kernels.attention._types import HeadReduction
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2

__all__ = ["aot_variants", "block_score"]

_TILE_ELEMENTS = 4096


@jit
def _block_score_kernel(
    query: tl.tensor,
    key_min: tl.tensor,
    key_max: tl.tensor,
    block_table: tl.tensor,
    scores: tl.tensor,
    num_columns: tl.tensor,
    num_pool_blocks: tl.tensor,
    num_outputs: tl.tensor,
    heads_per_output: tl.tensor,
    group_size: tl.tensor,
    stride_query_batch: tl.tensor,
    stride_query_head: tl.tensor,
    stride_min_block: tl.tensor,
    stride_min_head: tl.tensor,
    stride_max_block: tl.tensor,
    stride_max_head: tl.tensor,
    HEAD_DIM: tl.constexpr,
    TAKE_MAXIMUM: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    column = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    output = tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    channel = tl.arange(0, TILE_D)
    in_dim = channel < HEAD_DIM
    block = tl.load(block_table + batch * num_columns + column, mask=column < num_columns, other=-1)
    listed = (block >= 0) & (block < num_pool_blocks)
    mask = listed[:, None] & in_dim[None, :]
    block = block.to(tl.int64)
    total = tl.full([TILE_N], float("-inf") if TAKE_MAXIMUM else 0.0, tl.float32)
    for local_head in range(heads_per_output):
        kv_head = output * heads_per_output + local_head
        low_at = key_min + block[:, None] * stride_min_block + kv_head * stride_min_head + channel[None, :]
        high_at = key_max + block[:, None] * stride_max_block + kv_head * stride_max_head + channel[None, :]
        low = tl.load(low_at, mask=mask, other=0.0).to(tl.float32)
        high = tl.load(high_at, mask=mask, other=0.0).to(tl.float32)
        # An empty block's digest is (+inf, -inf) in every channel; the first one tells.
        crossed = (low == float("inf")) & (high == float("-inf")) & (channel == 0)[None, :]
        empty = tl.max(crossed.to(tl.int32), axis=1) > 0
        low = tl.where(empty[:, None], 0.0, low)
        high = tl.where(empty[:, None], 0.0, high)
        for member in range(group_size):
            query_head = kv_head * group_size + member
            query_at = query + batch * stride_query_batch + query_head * stride_query_head + channel
            q = tl.load(query_at, mask=in_dim, other=0.0).to(tl.float32)[None, :]
            bound = tl.sum(tl.maximum(q * low, q * high, propagate_nan=tl.PropagateNan.ALL), axis=1)
            bound = tl.where(empty, float("-inf"), bound)
            if TAKE_MAXIMUM:
                total = tl.maximum(total, bound, propagate_nan=tl.PropagateNan.ALL)
            else:
                total += bound
    total = tl.where(listed, total, float("-inf"))
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
    num_kv_heads, num_columns = key_min.shape[1], block_table.shape[1]
    num_outputs = 1 if head_reduction == "layer" else num_kv_heads
    scores = torch.empty(batch, num_outputs, num_columns, dtype=torch.float32, device=query.device)
    query = query if query.stride(2) == 1 else query.contiguous()
    tile_d = next_power_of_2(head_dim)
    tile_n = next_power_of_2(min(num_columns, max(_TILE_ELEMENTS // tile_d, 1)))
    launch(
        _block_score_kernel,
        (ceil_div(num_columns, tile_n), num_outputs, batch),
        query,
        key_min,
        key_max,
        block_table.contiguous(),
        scores,
        num_columns,
        key_min.shape[0],
        num_outputs,
        num_kv_heads // num_outputs,
        num_query_heads // num_kv_heads,
        *query.stride()[:2],
        *key_min.stride()[:2],
        *key_max.stride()[:2],
        device=query.device,
        TAKE_MAXIMUM=head_reduction == "group_max",
        TILE_N=tile_n,
        HEAD_DIM=head_dim,
        TILE_D=tile_d,
    )
    return scores


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: query and digest dtypes alike and mixed, sum and maximum."""
    return [
        KernelVariant(
            name=f"block_score[{query},{digest},d{head_dim},{'max' if take_maximum else 'sum'}]",
            kernel=_block_score_kernel,
            types={
                "query": f"*{query}",
                "key_min": f"*{digest}",
                "key_max": f"*{digest}",
                "block_table": "*i32",
                "scores": "*fp32",
            },
            constants={
                "TAKE_MAXIMUM": take_maximum,
                "TILE_N": _TILE_ELEMENTS // next_power_of_2(head_dim),
                "HEAD_DIM": head_dim,
                "TILE_D": next_power_of_2(head_dim),
            },
            aligned=frozenset({"stride_min_block", "stride_min_head", "stride_max_block", "stride_max_head"}),
        )
        for query, digest, head_dim, take_maximum in (
            ("fp32", "fp32", 128, False),
            ("fp16", "fp16", 128, False),
            ("bf16", "bf16", 128, False),
            ("bf16", "bf16", 64, True),
            ("bf16", "bf16", 256, False),
            ("fp32", "bf16", 128, True),
            ("bf16", "bf16", 80, False),
        )
    ]
