# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""The one Triton kernel behind gather, scatter and copy of KV blocks: blocks move as bits, tile by tile.

Elements move as the widest integers, up to 64 bits, that sizes, strides and addresses allow, so that NaN
payloads survive, no dtype needs its own kernel, and the compiler can join two of them to an access of 16
bytes. The dimensions of a block are folded into (outer, inner, columns), so that pools of any usual layout
work and contiguous ones become a plain copy. Ids beyond a pool count as absent: a check that raises would
stall the GPU.
"""

import math

import torch
import triton.language as tl

from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2

__all__ = ["aot_variants", "move_blocks"]

_TILE_BYTES = 16384  # eight loads of 16 bytes a thread
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


@jit(unspecialized=("num_source_blocks", "num_target_blocks", "num_rows", "num_inner"))
def _move_blocks_kernel(
    source: tl.tensor,
    source_ids: tl.tensor,
    target: tl.tensor,
    target_ids: tl.tensor,
    num_source_blocks: tl.tensor,
    num_target_blocks: tl.tensor,
    num_rows: tl.tensor,
    num_inner: tl.tensor,
    num_columns: tl.tensor,
    stride_source_block: tl.tensor,
    stride_source_outer: tl.tensor,
    stride_source_inner: tl.tensor,
    stride_source_column: tl.tensor,
    stride_target_block: tl.tensor,
    stride_target_outer: tl.tensor,
    stride_target_inner: tl.tensor,
    stride_target_column: tl.tensor,
    HAS_SOURCE_IDS: tl.constexpr,
    HAS_TARGET_IDS: tl.constexpr,
    ZERO_ABSENT: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_C: tl.constexpr,
) -> None:
    pair = tl.program_id(0).to(tl.int64)
    tiles_across = tl.cdiv(num_columns, TILE_C)
    row = (tl.program_id(1) // tiles_across) * TILE_R + tl.arange(0, TILE_R)
    column = (tl.program_id(1) % tiles_across) * TILE_C + tl.arange(0, TILE_C)
    from_block = pair
    to_block = pair
    if HAS_SOURCE_IDS:
        from_block = tl.load(source_ids + pair).to(tl.int64)
    if HAS_TARGET_IDS:
        to_block = tl.load(target_ids + pair).to(tl.int64)
    outer = (row // num_inner).to(tl.int64)[:, None]
    inner = (row % num_inner).to(tl.int64)[:, None]
    across = column.to(tl.int64)[None, :]
    from_at = from_block * stride_source_block + outer * stride_source_outer + inner * stride_source_inner
    to_at = to_block * stride_target_block + outer * stride_target_outer + inner * stride_target_inner
    # An absent block has no rows. (As masks, scalar conditions would break in Triton's interpreter, which
    # broadcasts them as int32.)
    rows_to_write = tl.where((to_block >= 0) & (to_block < num_target_blocks), num_rows, 0)
    rows_to_read = tl.where((from_block >= 0) & (from_block < num_source_blocks), rows_to_write, 0)
    in_width = (column < num_columns)[None, :]
    readable = (row < rows_to_read)[:, None] & in_width
    tile = tl.load(source + from_at + across * stride_source_column, mask=readable, other=0)
    writable = (row < rows_to_write)[:, None] & in_width if ZERO_ABSENT else readable
    tl.store(target + to_at + across * stride_target_column, tile, mask=writable)


def _as_words(source: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """View both as the widest integers that divide all of their rows, strides and addresses."""
    itemsize = source.element_size()
    width = itemsize
    if source.dim() > 1 and all(tensor.stride(-1) == 1 for tensor in (source, target)):
        lengths = [source.shape[-1], *source.stride()[:-1], *target.stride()[:-1]]
        lengths += [int(source.storage_offset()), int(target.storage_offset())]
        width = math.gcd(max(_WORDS), *(length * itemsize for length in lengths))
    return source.view(_WORDS[width]), target.view(_WORDS[width])


def _fold(
    shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> tuple[list[int], list[int], list[int]]:
    """Join neighbouring dimensions that are dense in both layouts, then pad on the left to three.

    Raises:
        ValueError: if more than three dimensions remain.
    """
    sizes, source_strides, target_strides = [1], [1], [1]
    for size, s, t in reversed(list(zip(shape, source, target, strict=True))):
        if size == 1:
            continue
        if sizes[0] == 1:
            sizes[0], source_strides[0], target_strides[0] = size, s, t
        elif s == source_strides[0] * sizes[0] and t == target_strides[0] * sizes[0]:
            sizes[0] *= size
        else:
            sizes.insert(0, size)
            source_strides.insert(0, s)
            target_strides.insert(0, t)
    if len(sizes) > 3:
        raise ValueError(
            f"the Triton copy takes blocks of at most 3 dimensions that are not dense, "
            f"got shape {shape} with strides {source} and {target}"
        )
    pad = 3 - len(sizes)
    return [1] * pad + sizes, [0] * pad + source_strides, [0] * pad + target_strides


def move_blocks(
    source: torch.Tensor,
    source_ids: torch.Tensor | None,
    target: torch.Tensor,
    target_ids: torch.Tensor | None,
    *,
    num_pairs: int,
    zero_absent: bool = False,
) -> None:
    """Copy `source[source_ids[i]]` to `target[target_ids[i]]` for each pair i.

    Args:
        source: `[P, ...]`, any strides.
        source_ids: `[num_pairs]` int32, -1 absent; None means pair i reads block i.
        target: `[Q, ...]` of the source's dtype and inner shape, any strides; must not overlap the source.
        target_ids: `[num_pairs]` int32, -1 skipped; None means pair i writes block i.
        num_pairs: pairs to move.
        zero_absent: an absent source writes zeros instead of nothing.

    Raises:
        ValueError: if the inner layout needs more than three dimensions.
    """
    source, target = _as_words(source, target)
    sizes, source_strides, target_strides = _fold(
        tuple(source.shape[1:]), source.stride()[1:], target.stride()[1:]
    )
    rows, columns = sizes[0] * sizes[1], sizes[2]
    tile_r, tile_c = _tile(rows, columns, source.element_size())
    launch(
        _move_blocks_kernel,
        (num_pairs, ceil_div(rows, tile_r) * ceil_div(columns, tile_c)),
        source,
        source if source_ids is None else source_ids.contiguous(),
        target,
        target if target_ids is None else target_ids.contiguous(),
        source.shape[0],
        target.shape[0],
        rows,
        sizes[1],
        columns,
        source.stride(0),
        *source_strides,
        target.stride(0),
        *target_strides,
        device=source.device,
        HAS_SOURCE_IDS=source_ids is not None,
        HAS_TARGET_IDS=target_ids is not None,
        ZERO_ABSENT=zero_absent,
        TILE_R=tile_r,
        TILE_C=tile_c,
    )


def _tile(rows: int, columns: int, itemsize: int) -> tuple[int, int]:
    """Rows and columns of a tile; whole rows where they fit, so that a dense block is one long copy."""
    elements = _TILE_BYTES // itemsize
    tile_c = next_power_of_2(min(columns, elements))
    return next_power_of_2(min(rows, elements // tile_c)), tile_c


def aot_variants(operation: str, *, has_source_ids: bool, has_target_ids: bool) -> list[KernelVariant]:
    """What ahead-of-time compilation builds for one of the three operations: each element width."""
    return [
        _variant(operation, kind, rows, columns, has_source_ids=has_source_ids, has_target_ids=has_target_ids)
        for kind, rows, columns in (("i64", 1, 8192), ("i64", 256, 32), ("i16", 256, 128), ("u8", 256, 128))
    ]


def _variant(
    operation: str, kind: str, rows: int, columns: int, *, has_source_ids: bool, has_target_ids: bool
) -> KernelVariant:
    tile_r, tile_c = _tile(rows, columns, int(kind[1:]) // 8)
    return KernelVariant(
        name=f"{operation}[{kind},{rows}x{columns}]",
        kernel=_move_blocks_kernel,
        types={
            **dict.fromkeys(("source", "target"), f"*{kind}"),
            **dict.fromkeys(("source_ids", "target_ids"), "*i32"),
        },
        constants={
            # Triton compiles a stride of 1 as a constant, which is what makes wide accesses possible.
            "stride_source_column": 1,
            "stride_target_column": 1,
            "HAS_SOURCE_IDS": has_source_ids,
            "HAS_TARGET_IDS": has_target_ids,
            "ZERO_ABSENT": not has_target_ids,
            "TILE_R": tile_r,
            "TILE_C": tile_c,
        },
        aligned=frozenset({"num_columns"}).union(
            f"stride_{side}_{axis}" for side in ("source", "target") for axis in ("block", "outer", "inner")
        ),
    )
