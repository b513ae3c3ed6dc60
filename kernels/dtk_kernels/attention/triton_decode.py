# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""What decode attention kernels share in Triton: listed blocks, the online softmax, partial results."""

import torch
import triton.language as tl

from dtk_kernels.attention.sparse_decode_attention.launch_plan import Tiles
from dtk_kernels.triton_support import jit

__all__ = [
    "STRIDES_OF_TABLES",
    "empty_result",
    "last_dim_dense",
    "listed_tokens",
    "softmax_step",
    "store_lse",
    "table_strides",
    "tile_constants",
    "weighted_values",
]

STRIDES_OF_TABLES = tuple(
    f"stride_{table}_{axis}" for table in ("table", "lengths") for axis in ("batch", "head")
)


@jit
def _listed_blocks(
    block_table: tl.tensor,
    block_lengths: tl.tensor,
    column: tl.tensor,
    num_columns: tl.tensor,
    num_pool_blocks: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    SCALAR_LOOKUP: tl.constexpr,
    TILE_T: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Pool block and number of valid tokens for each token of a tile; both scalars where it has one block.

    Absent blocks have no tokens, and columns from `num_columns` on are absent.
    """
    if COLUMNS == 1:
        block = tl.load(block_table + column)
        length = tl.load(block_lengths + column)
    elif SCALAR_LOOKUP:
        # Scalar loads and selects need no shared memory, and the address of a block is computed once.
        of_column = tl.arange(0, TILE_T) // BLOCK_SIZE
        block = tl.full([TILE_T], -1, tl.int32)
        length = tl.zeros([TILE_T], tl.int32)
        for i in tl.static_range(COLUMNS):
            at = tl.minimum(column + i, num_columns - 1)
            here = (of_column == i) & (column + i < num_columns)
            block = tl.where(here, tl.load(block_table + at), block)
            length = tl.where(here, tl.load(block_lengths + at), length)
    else:
        of_column = tl.arange(0, TILE_T) // BLOCK_SIZE
        at = column + of_column
        here = (of_column < COLUMNS) & (at < num_columns)  # the last tokens of a tile may belong to no block
        block = tl.load(block_table + at, mask=here, other=-1)
        length = tl.load(block_lengths + at, mask=here, other=0)
    return block, tl.where((block >= 0) & (block < num_pool_blocks), length, 0)


@jit
def listed_tokens(
    block_table: tl.tensor,
    block_lengths: tl.tensor,
    tile: tl.tensor,
    num_columns: tl.tensor,
    num_pool_blocks: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES_PER_BLOCK: tl.constexpr,
    SCALAR_LOOKUP: tl.constexpr,
    TILE_T: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Pool block, slot in it and whether it counts, for each token of a tile.

    What does not count must be masked out of the loads: so whatever lies there cannot leak.
    """
    column = (tile // TILES_PER_BLOCK) * COLUMNS
    slot = (tile % TILES_PER_BLOCK) * TILE_T + tl.arange(0, TILE_T)
    if COLUMNS > 1:
        slot = tl.arange(0, TILE_T) % BLOCK_SIZE
    block, length = _listed_blocks(
        block_table, block_lengths, column, num_columns, num_pool_blocks, BLOCK_SIZE, COLUMNS, SCALAR_LOOKUP,
        TILE_T,
    )  # fmt: skip
    live = slot < tl.minimum(length, BLOCK_SIZE)
    return block.to(tl.int64), slot.to(tl.int64), live


@jit
def softmax_step(
    score: tl.tensor, maximum: tl.tensor, weight_sum: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Weights of a tile's scores (in base 2), the factor of everything before, new maximum, new sum."""
    new_maximum = tl.maximum(maximum, tl.max(score, axis=1))
    # -inf - -inf is NaN; before the first live token any finite reference gives the weights 0.
    reference = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    keep = tl.exp2(maximum - reference)
    weights = tl.exp2(score - reference[:, None])
    return weights, keep, new_maximum, weight_sum * keep + tl.sum(weights, axis=1)


@jit
def weighted_values(
    weights: tl.tensor, values: tl.tensor, total: tl.tensor, IN_FP32: tl.constexpr
) -> tl.tensor:
    """`total + weights @ values` with fp32 weights, whatever the values' dtype."""
    if IN_FP32:
        total = tl.dot(weights, values.to(tl.float32), total, input_precision="tf32x3")
    else:
        high = weights.to(values.dtype)
        low = (weights - high.to(tl.float32)).to(values.dtype)
        total = tl.dot(high, values, total)
        total = tl.dot(low, values, total)
    return total


@jit
def store_lse(
    lses: tl.tensor, row: tl.tensor, mask: tl.tensor, maximum: tl.tensor, weight_sum: tl.tensor
) -> tl.tensor:
    """Store the natural log-sum-exp of each row, -inf where there was no token; return what to divide by."""
    empty = weight_sum == 0.0
    divisor = tl.where(empty, 1.0, weight_sum)
    ln_2: tl.constexpr = tl.constexpr(0.6931471805599453)
    tl.store(lses + row, tl.where(empty, float("-inf"), (maximum + tl.log2(divisor)) * ln_2), mask=mask)
    return divisor


def empty_result(query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result of attending to nothing."""
    output = torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    return output, query.new_full(query.shape[:2], float("-inf"), dtype=torch.float32)


def last_dim_dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, copied if its last dim has gaps."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def table_strides(table: torch.Tensor) -> tuple[int, int]:
    """Strides of sequence and KV head; a list for all heads is walked by each of them."""
    return table.stride(0), table.stride(1) if table.shape[1] > 1 else 0


def tile_constants(tiles: Tiles) -> dict[str, object]:
    """Compile-time parameters that say how a program walks its blocks."""
    return {
        "HEAD_CHUNKS": tiles.head_chunks,
        "COLUMNS": tiles.columns,
        "TILES_PER_BLOCK": tiles.tiles_per_block,
        "SCALAR_LOOKUP": tiles.scalar_lookup,
        "TILE_M": tiles.rows,
        "TILE_T": tiles.tokens,
        "TILE_D": tiles.channels,
    }
