# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Block selection in Triton: one program selects the top blocks of one row, in registers, without sorting.

Scores become unsigned integers of the same order. The k-th largest is built bit by bit from the top, at most
32 counts over the row and fewer as soon as one parts the row at k; everything above it is in, and ties at it
are filled in order of column, so the result equals that of a stable sort. A prefix sum puts the columns out
in ascending order, in pieces where the row is long, since registers hold either the row or its ranks.

A row that forces more columns than it may select keeps the first of them: a check would stall the GPU.
"""

import torch
import triton.language as tl

from dtk_kernels.triton_support import KernelVariant, jit, launch, next_power_of_2

__all__ = ["MAX_COLUMNS", "aot_variants", "select_blocks"]

MAX_COLUMNS = 32768
"""Longest row one program holds: 1 million tokens in blocks of 32."""

_MAX_TILE_OUT = 8192
_MAX_TILE_PAD = 1024


@jit
def _load_keys(
    scores: tl.tensor,
    forced: tl.tensor,
    column: tl.tensor,
    num_columns: tl.tensor,
    HAS_FORCED: tl.constexpr,
) -> tl.tensor:
    """Unsigned integers ordered as the scores are; 0 for what is never selected (NaN, -inf, no column)."""
    inside = column < num_columns
    score = tl.load(scores + column, mask=inside, other=float("-inf"))
    # -0.0 and 0.0 tie as numbers, so they must tie as bits.
    score = tl.where(score == 0.0, 0.0, score)
    bits = score.to(tl.uint32, bitcast=True)
    sign: tl.constexpr = tl.constexpr(0x80000000)
    key = tl.where(bits >= sign, ~bits, bits | sign)
    key = tl.where((score != score) | (score == float("-inf")), 0, key)
    if HAS_FORCED:
        is_forced = tl.load(forced + column, mask=inside, other=0)
        key = tl.where(is_forced != 0, 0xFFFFFFFF, key).to(tl.uint32)
    return key


@jit
def _threshold(key: tl.tensor, num_selected: tl.tensor) -> tl.tensor:
    """The largest key that at least num_selected keys reach, or one that just as many reach; 0 if none."""
    threshold = tl.full([], 0, tl.uint32)
    step = tl.full([], 0x80000000, tl.uint32)
    count = num_selected + 1
    while (step > 0) & (count != num_selected):
        candidate = threshold | step
        count = tl.sum((key >= candidate).to(tl.int32), axis=0)
        threshold = tl.where(count >= num_selected, candidate, threshold)
        step = step >> 1
    return threshold


@jit(unspecialized=("num_columns", "num_selected", "rows_per_batch", "stride_row"))
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
    TILE_OUT: tl.constexpr,
    TILE_PAD: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride_row
    forced += (row // rows_per_batch) * num_columns
    out = selected + row * num_selected
    row_keys = _load_keys(scores, forced, tl.arange(0, TILE_N), num_columns, HAS_FORCED)
    threshold = _threshold(row_keys, num_selected)
    room = num_selected - tl.sum((row_keys > threshold).to(tl.int32), axis=0)
    above_before = tl.zeros([1], tl.int32)
    tied_before = tl.zeros([1], tl.int32)
    for first in range(0, TILE_N, TILE_OUT):
        column = first + tl.arange(0, TILE_OUT)
        key = row_keys
        if TILE_OUT < TILE_N:
            key = _load_keys(scores, forced, column, num_columns, HAS_FORCED)
        above = key > threshold
        tied = (key == threshold) & (key > 0)
        # One scan for both ranks: columns above the threshold in the low half, tied ones in the high half.
        ranks = tl.cumsum(above.to(tl.uint32) | (tied.to(tl.uint32) << 16), axis=0)
        above_rank = above_before + (ranks & 0xFFFF).to(tl.int32)
        tied_rank = tied_before + (ranks >> 16).to(tl.int32)
        position = above_rank + tl.minimum(tied_rank, room) - 1
        tl.store(out + position, column, mask=above | (tied & (tied_rank <= room)))
        above_before += tl.sum(above.to(tl.int32), axis=0)
        tied_before += tl.sum(tied.to(tl.int32), axis=0)
    found = above_before + tl.minimum(tied_before, room)
    for first in range(0, num_selected, TILE_PAD):
        slot = first + tl.arange(0, TILE_PAD)
        tl.store(out + slot, tl.full([TILE_PAD], -1, tl.int32), mask=(slot >= found) & (slot < num_selected))


def _num_warps(tile: int) -> int:
    """Warps that leave each thread 8 columns, up to the 32 warps a program can have: rows are few."""
    return min(max(tile // 256, 1), 32)


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
        **_tiles(tile_n),
        num_warps=_num_warps(tile_n),
    )
    return selected


def _tiles(tile_n: int) -> dict[str, int]:
    return {"TILE_N": tile_n, "TILE_OUT": min(tile_n, _MAX_TILE_OUT), "TILE_PAD": min(tile_n, _MAX_TILE_PAD)}


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: short, long and longest rows."""
    return [
        KernelVariant(
            name=f"select_blocks[n{tile_n}{',forced' if has_forced else ''}]",
            kernel=_select_blocks_kernel,
            types={"scores": "*fp32", "forced": "*u8", "selected": "*i32"},
            constants={"HAS_FORCED": has_forced, **_tiles(tile_n)},
            num_warps=_num_warps(tile_n),
        )
        for tile_n, has_forced in ((256, True), (2048, False), (8192, True), (MAX_COLUMNS, True))
    ]
