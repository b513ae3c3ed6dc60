# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Block selection in Triton: one program selects the top blocks of one row, in registers, without sorting.

Scores become unsigned integers of the same order. The k-th largest is built bit by bit from the top (32
counts over the row), everything above it is in, and ties at it are filled in order of column, so the
result equals that of a stable sort. A prefix sum puts the columns out in ascending order.

A row that forces more columns than it may select keeps the first of them: a check would stall the GPU.
"""

import torch
import triton.language as tl

from dtk_kernels.triton_support import KernelVariant, jit, launch, next_power_of_2

__all__ = ["MAX_COLUMNS", "aot_variants", "select_blocks"]

MAX_COLUMNS = 32768
"""Longest row one program holds: 1 million tokens in blocks of 32."""


@jit
def _ordered_key(score: tl.tensor) -> tl.tensor:
    """Unsigned integers ordered as the scores are; 0 for what is never selected (NaN and -inf)."""
    # -0.0 and 0.0 tie as numbers, so they must tie as bits.
    score = tl.where(score == 0.0, 0.0, score)
    bits = score.to(tl.uint32, bitcast=True)
    sign: tl.constexpr = tl.constexpr(0x80000000)
    key = tl.where(bits >= sign, ~bits, bits | sign)
    return tl.where((score != score) | (score == float("-inf")), 0, key)


@jit
def _select_blocks_kernel(
    scores: tl.tensor,
    forced: tl.tensor,
    selected: tl.tensor,
    num_columns: tl.tensor,
    num_selected: tl.tensor,
    rows_per_batch: tl.tensor,
    stride_row: tl.tensor,
    HAS_FORCED: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE_N)
    inside = column < num_columns
    score = tl.load(scores + row * stride_row + column, mask=inside, other=float("-inf"))
    key = _ordered_key(score)
    if HAS_FORCED:
        batch = row // rows_per_batch
        is_forced = tl.load(forced + batch * num_columns + column, mask=inside, other=0)
        key = tl.where(is_forced != 0, 0xFFFFFFFF, key).to(tl.uint32)

    # The largest threshold that at least num_selected keys reach; 0 if there are not that many.
    threshold = tl.zeros([1], tl.uint32)
    step = tl.full([1], 0x80000000, tl.uint32)
    for _ in range(32):
        candidate = threshold | step
        count = tl.sum((key >= candidate).to(tl.int32), axis=0)
        threshold = tl.where(count >= num_selected, candidate, threshold)
        step = step >> 1

    above = key > threshold
    tied = (key == threshold) & (key > 0)
    room = num_selected - tl.sum(above.to(tl.int32), axis=0)
    # One scan for both ranks: columns above the threshold in the low half, tied ones in the high half.
    ranks = tl.cumsum(above.to(tl.uint32) | (tied.to(tl.uint32) << 16), axis=0)
    tied_rank = (ranks >> 16).to(tl.int32)
    chosen = above | (tied & (tied_rank <= room))
    position = (ranks & 0xFFFF).to(tl.int32) + tl.minimum(tied_rank, room) - 1
    found = tl.sum(chosen.to(tl.int32), axis=0)
    out = selected + row * num_selected
    tl.store(out + position, column, mask=chosen)
    slot = tl.arange(0, TILE_K)
    tl.store(out + slot, tl.full([TILE_K], -1, tl.int32), mask=(slot >= found) & (slot < num_selected))


def _num_warps(tile: int) -> int:
    """Warps that leave each thread at most 32 columns, up to the 32 warps a program can have."""
    return min(max(tile // 1024, 1), 32)


def select_blocks(
    scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None
) -> torch.Tensor:
    """Column indices of the top scores of each row, forced columns first.

    Args:
        scores: `[B, G, N]` fp32. NaN and -inf are never selected unless forced.
        num_selected: columns to select.
        forced: `[B, N]` bool, columns that are always in, and counted.

    Returns:
        `[B, G, num_selected]` int32, ascending, -1 padding at the end. On a tie the lower index wins.

    Raises:
        ValueError: if there are more than 32768 columns.
    """
    batch, num_outputs, num_columns = scores.shape
    if num_columns > MAX_COLUMNS:
        raise ValueError(
            f"select_blocks: the Triton kernel takes up to {MAX_COLUMNS} columns, got {num_columns}"
        )
    selected = torch.empty(batch, num_outputs, num_selected, dtype=torch.int32, device=scores.device)
    if num_columns == 0:
        return selected.fill_(-1)
    tile_n = next_power_of_2(num_columns, at_least=16)
    launch(
        _select_blocks_kernel,
        (batch * num_outputs if num_selected else 0,),
        scores.contiguous(),
        scores if forced is None else forced.contiguous().view(torch.uint8),
        selected,
        num_columns,
        num_selected,
        num_outputs,
        num_columns,
        device=scores.device,
        HAS_FORCED=forced is not None,
        TILE_N=tile_n,
        TILE_K=next_power_of_2(num_selected),
        num_warps=_num_warps(tile_n),
    )
    return selected


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: short, long and longest rows."""
    return [
        KernelVariant(
            name=f"select_blocks[n{tile_n}{',forced' if has_forced else ''}]",
            kernel=_select_blocks_kernel,
            types={"scores": "*fp32", "forced": "*u8", "selected": "*i32"},
            constants={"HAS_FORCED": has_forced, "TILE_N": tile_n, "TILE_K": tile_k},
            num_warps=_num_warps(tile_n),
        )
        for tile_n, tile_k, has_forced in (
            (256, 32, True),
            (2048, 64, False),
            (8192, 128, True),
            (MAX_COLUMNS, 1024, True),
        )
    ]
