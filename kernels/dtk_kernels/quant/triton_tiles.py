# ruff: noqa: N803, N806 - Triton names what it knows at compile time in capitals
"""How Triton programs share out a tensor: each takes a tile of whole blocks, or of a part of one block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton.language as tl

from dtk_kernels.triton_support import ceil_div, jit, next_power_of_2

__all__ = ["Axis", "Tiling", "as_matrices", "index_of", "spread", "tile_of", "tiling_of"]

_ELEMENTS = 4096
_MOST_ELEMENTS = 16384
_ELEMENTS_A_WARP = 1024
_MOST_WARPS = 8
_NARROW = 64  # elements side by side that make good use of memory


@dataclass(frozen=True)
class Axis:
    """One dim of a matrix, its blocks, and how much of it a tile covers.

    Attributes:
        length: Elements.
        block: Elements of a block; the last one may be short.
        num_blocks: Blocks of a tile; 1 if it is a part.
        width: Elements of each in the tile, a power of two: of a whole block, or of a part.
    """

    length: int
    block: int
    num_blocks: int
    width: int

    @property
    def blocks(self) -> int:
        """Blocks of the whole dim."""
        return ceil_div(self.length, self.block)

    @property
    def parts(self) -> int:
        """Tiles that it takes for one block."""
        return ceil_div(self.block, self.width)

    @property
    def tiles(self) -> int:
        """Tiles of the whole dim."""
        return ceil_div(self.blocks, self.num_blocks) * self.parts

    @property
    def constants(self) -> tuple[int, int, bool, bool]:
        """Blocks, their width, whether they lie side by side in the tile, whether all tiles are full."""
        if self.parts > 1:
            full = self.block % self.width == 0 and self.length % self.block == 0
            return 1, self.width, True, full
        dense = self.block == self.width
        return self.num_blocks, self.width, dense, dense and self.length % (self.width * self.num_blocks) == 0


@dataclass(frozen=True)
class Tiling:
    """How matrices `[lead, rows, columns]` are cut into tiles.

    Attributes:
        lead: Matrices.
        down: Along rows.
        across: Along columns.
    """

    lead: int
    down: Axis
    across: Axis

    @property
    def parts(self) -> int:
        """Tiles that it takes for one block; 1 if tiles hold whole blocks."""
        return self.down.parts * self.across.parts

    @property
    def blocks(self) -> int:
        """Blocks of all matrices."""
        return self.lead * self.down.blocks * self.across.blocks

    @property
    def tiles(self) -> int:
        """Tiles of all matrices."""
        return self.lead * self.down.tiles * self.across.tiles

    @property
    def num_warps(self) -> int:
        """Warps of a program."""
        elements = math.prod(axis.num_blocks * axis.width for axis in (self.down, self.across))
        return min(max(elements // _ELEMENTS_A_WARP, 1), _MOST_WARPS)

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """What `tile_of` is told at run time."""
        down, across = self.down, self.across
        return down.length, across.length, down.block, across.block, down.blocks, across.blocks


def as_matrices(x: torch.Tensor, block: Sequence[int] | None) -> tuple[torch.Tensor, int, int]:
    """Return the tensor (not empty) as `[lead, rows, columns]`, and the height and width of a block.

    Dims are joined where blocks allow it, so that there is one long row at best. Block None makes each matrix
    a block of its own.
    """
    dense = x.is_contiguous()
    if block is None and dense:
        return x.reshape(1, 1, -1), 1, x.numel()
    rows, columns = (1, *x.shape)[-2:]
    height, width = (0, 0) if block is None else block
    height, width = min(height or rows, rows), min(width or columns, columns)
    matrices = x.reshape(-1, rows, columns)
    if height > 1 or block is None:
        return matrices, height, width
    if dense and columns % width == 0:
        return x.reshape(1, 1, -1), 1, width
    if len(matrices) == 1 or matrices.stride(0) == rows * matrices.stride(1):
        matrices = matrices.reshape(1, -1, columns)
    return matrices, 1, width  # where rows do not join, joining would copy them


def tiling_of(matrices: torch.Tensor, height: int, width: int, *, whole_blocks: bool = True) -> Tiling:
    """Choose tiles of `as_matrices`: of whole blocks where such a tile is small enough, else of parts.

    Args:
        matrices: `[lead, rows, columns]`.
        height: Rows of a block.
        width: Columns of a block.
        whole_blocks: Whether large tiles are worth it.
    """
    lead, rows, columns = matrices.shape
    transposed = rows > 1 and matrices.stride(1) < matrices.stride(2)
    padded_height, padded_width = next_power_of_2(height), next_power_of_2(width)
    longest = next_power_of_2(columns)
    # Wide tiles, but for tall blocks and for columns that lie side by side in memory.
    wanted = _NARROW if transposed else max(_ELEMENTS // padded_height, _NARROW // 2)
    across = max(padded_width, min(longest, wanted))
    down = max(padded_height, min(next_power_of_2(rows), max(_ELEMENTS // across, 1)))
    if down * across > (_MOST_ELEMENTS if whole_blocks else _ELEMENTS):
        across = min(max(padded_width, min(longest, _NARROW)), _NARROW if transposed else _ELEMENTS)
        down = min(next_power_of_2(rows), max(_ELEMENTS // across, 1))
    return Tiling(lead, _axis(rows, height, down), _axis(columns, width, across))


def _axis(length: int, block: int, span: int) -> Axis:
    padded = next_power_of_2(block)
    return Axis(length, block, max(span // padded, 1), min(span, padded))


@jit
def _elements(
    tile: tl.tensor, parts: tl.tensor, length: tl.tensor, block: tl.tensor, AXIS: tl.constexpr
) -> tl.tensor:
    """Return the first element of a tile along an axis, the distance of each from it, and which exist."""
    BLOCKS: tl.constexpr = AXIS[0]
    WIDTH: tl.constexpr = AXIS[1]
    tile = tile.to(tl.int64)
    local = tl.arange(0, BLOCKS * WIDTH)
    if BLOCKS == 1:
        part = tile % parts * WIDTH
        first = tile // parts * block + part
        distance = local
        there = local < tl.minimum(tl.minimum(block - part, length - first), WIDTH).to(tl.int32)
    elif AXIS[2]:
        first = tile * (BLOCKS * WIDTH)
        distance = local
        there = local < tl.minimum(length - first, BLOCKS * WIDTH).to(tl.int32)
    else:
        first = tile * BLOCKS * block
        distance = (local // WIDTH) * block + local % WIDTH
        there = (local % WIDTH < block) & (distance < length - first)
    return first, distance, there


@jit
def tile_of(
    rows: tl.tensor,
    columns: tl.tensor,
    block_rows: tl.tensor,
    block_columns: tl.tensor,
    blocks_down: tl.tensor,
    blocks_across: tl.tensor,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
) -> tl.tensor:
    """Say which tile this program has.

    Returns:
        Its matrix; its first row, the distances of its rows from it; the same for columns; the mask of its
        elements; its blocks `[down, across]`, counted through all matrices, and their mask; the part that it
        is, counted through all blocks.
    """
    parts_down = tl.cdiv(block_rows, DOWN[1])
    parts_across = tl.cdiv(block_columns, ACROSS[1])
    tiles_down = tl.cdiv(blocks_down, DOWN[0]) * parts_down
    tiles_across = tl.cdiv(blocks_across, ACROSS[0]) * parts_across
    program = tl.program_id(0)
    down, across = program // tiles_across % tiles_down, program % tiles_across
    lead = (program // tiles_across // tiles_down).to(tl.int64)
    row, in_row, rows_there = _elements(down, parts_down, rows, block_rows, DOWN)
    column, in_column, columns_there = _elements(across, parts_across, columns, block_columns, ACROSS)
    mask = tl.full([1, 1], 1, tl.int1)
    if not DOWN[3]:  # where all tiles are full, no mask shall keep the compiler from wide accesses
        mask = mask & rows_there[:, None]
    if not ACROSS[3]:
        mask = mask & columns_there[None, :]
    block_down = (down // parts_down).to(tl.int64) * DOWN[0] + tl.arange(0, DOWN[0])
    block_across = (across // parts_across).to(tl.int64) * ACROSS[0] + tl.arange(0, ACROSS[0])
    block = (lead * blocks_down + block_down)[:, None] * blocks_across + block_across[None, :]
    blocks_there = (block_down < blocks_down)[:, None] & (block_across < blocks_across)[None, :]
    part = (block * parts_down + down % parts_down) * parts_across + across % parts_across
    return lead, row, in_row, column, in_column, mask, block, blocks_there, part


@jit
def index_of(
    row: tl.tensor,
    in_row: tl.tensor,
    column: tl.tensor,
    in_column: tl.tensor,
    stride_row: tl.tensor,
    stride_column: tl.tensor,
) -> tl.tensor:
    """Return where in memory the elements of a tile lie."""
    first = row * stride_row + column * stride_column
    return (
        first
        + (in_row.to(tl.int64) * stride_row)[:, None]
        + (in_column.to(tl.int64) * stride_column)[None, :]
    )


@jit
def spread(values: tl.tensor, DOWN: tl.constexpr, ACROSS: tl.constexpr) -> tl.tensor:
    """Repeat a value for each block of a tile over the block's elements."""
    shape: tl.constexpr = [DOWN[0], DOWN[1], ACROSS[0], ACROSS[1]]
    # (A reshape in place of the new axes would give every thread all of the tile.)
    full = tl.broadcast_to(values[:, None, :, None], shape)
    return tl.reshape(full, [DOWN[0] * DOWN[1], ACROSS[0] * ACROSS[1]])
