"""How sparse decode attention is cut into programs: tiles by dtype and head size, splits by GPU and batch.

Decode attention reads each key and value once, so a plan is good if enough bytes are on their way at any
time (an H200 needs some 30 KiB a multiprocessor) and if all multiprocessors stay busy until the end. The
figures here come from what the compiler makes of the kernel (registers, shared memory) and from arithmetic;
no GPU has tuned them yet (`python benchmarks/gpu_kernels.py --tune` compares others).
"""

from dataclasses import dataclass
from functools import lru_cache

import torch

from dtk_kernels.triton_support import ceil_div, next_power_of_2

__all__ = [
    "Pipeline",
    "Tiles",
    "columns_for_each_split",
    "cut",
    "padded_rows",
    "pipeline_for",
    "programs_at_once",
    "split_count",
    "tiles_for",
]

_MIN_DOT = 16  # rows, columns and summands that tl.dot wants at least; tensor cores have 16 rows anyway
_MAX_ROWS = 32  # more query heads in one program spill registers
_MAX_TOKENS = 128
_SCALAR_COLUMNS = 8  # up to here a tile looks its blocks up one by one, beyond it with a vector load
_MAX_BUFFER_BYTES = 96 * 1024
_MAX_SPLITS = 128
_REGISTERS = 65536  # of a multiprocessor

# Costs of the model in `split_count`, in units of the time in which every program place handles one tile.
_LEAST_LOAD = 0.5  # with fewer than half of the places taken, latency bounds the speed, not bandwidth
_MERGE = 0.5  # the second launch
_PARTIAL = 0.25  # writing and reading a partial result of 8 query heads, beside a tile of K and V


@dataclass(frozen=True)
class Pipeline:
    """What is free to choose: all that changes speed alone.

    Attributes:
        tokens: tokens a tile, padded.
        buffers: tiles of K, and of V, that shared memory holds: the one at work and those on their way.
        num_warps: warps a program.
    """

    tokens: int
    buffers: int
    num_warps: int


@dataclass(frozen=True)
class Tiles:
    """What one program handles at a time.

    Attributes:
        rows: query heads, padded; more heads than that share a KV head in several programs.
        head_chunks: programs that share a KV head.
        tokens: tokens a tile, padded.
        columns: table columns a tile covers; 1 if a block is as large as a tile or larger.
        tiles_per_block: tiles a block takes; 1 if a tile is as large as a block or larger.
        scalar_lookup: whether the tile's blocks are looked up one by one.
        channels: the head size, padded.
        in_fp32: whether products are taken in fp32 rather than in the 16-bit dtype of all tensors.
        num_warps: warps a program.
        num_stages: depth of the software pipeline.
        shared_bytes: shared memory that the pipeline's buffers take, about.
    """

    rows: int
    head_chunks: int
    tokens: int
    columns: int
    tiles_per_block: int
    scalar_lookup: bool
    channels: int
    in_fp32: bool
    num_warps: int
    num_stages: int
    shared_bytes: int


def pipeline_for(query: torch.dtype, pool: torch.dtype, *, head_dim: int, group_size: int) -> Pipeline:
    """Return the pipeline for query and pool dtypes, head size and query heads a KV head."""
    in_fp32, rows, channels = _padding(query, pool, head_dim, group_size)
    # 16 KiB of K in 16 bits; half of that in fp32 or converted to it, where operands fill the registers.
    wanted = (2048 if pool == torch.float32 else 4096 if in_fp32 else 8192) // channels
    tokens = min(max(wanted, _MIN_DOT), _MAX_TOKENS)
    return Pipeline(
        tokens=tokens,
        buffers=2 if 4 * tokens * channels * pool.itemsize <= _MAX_BUFFER_BYTES else 1,
        num_warps=8 if in_fp32 and rows * channels > 16 * 128 else 4,
    )


def _padding(query: torch.dtype, pool: torch.dtype, head_dim: int, group_size: int) -> tuple[bool, int, int]:
    """Whether products are taken in fp32; rows and channels of a tile."""
    in_fp32 = query != pool or pool == torch.float32
    return in_fp32, padded_rows(group_size), next_power_of_2(head_dim, at_least=_MIN_DOT)


def padded_rows(group_size: int) -> int:
    """Return the rows of a tile for so many query heads a KV head."""
    return min(next_power_of_2(group_size, at_least=_MIN_DOT), _MAX_ROWS)


@lru_cache(maxsize=256)
def tiles_for(
    query: torch.dtype,
    pool: torch.dtype,
    *,
    head_dim: int,
    block_size: int,
    group_size: int,
    pipeline: Pipeline | None = None,
) -> Tiles:
    """Return the tiles for query and pool dtypes, head size, tokens a block and query heads a KV head."""
    if pipeline is None:
        pipeline = pipeline_for(query, pool, head_dim=head_dim, group_size=group_size)
    in_fp32, rows, channels = _padding(query, pool, head_dim, group_size)
    return cut(
        pipeline, rows=rows, channels=channels, in_fp32=in_fp32, block_size=block_size, group_size=group_size,
        row_bytes=channels * pool.itemsize,
    )  # fmt: skip


def cut(
    pipeline: Pipeline,
    *,
    rows: int,
    channels: int,
    in_fp32: bool,
    block_size: int,
    group_size: int,
    row_bytes: int,
) -> Tiles:
    """Return the tiles of a pipeline; `row_bytes` is what a token's key takes in a buffer."""
    columns = max(pipeline.tokens // block_size, 1)
    scalar_lookup = columns <= _SCALAR_COLUMNS
    return Tiles(
        rows=rows,
        head_chunks=ceil_div(group_size, rows),
        tokens=pipeline.tokens,
        columns=columns,
        tiles_per_block=ceil_div(block_size, pipeline.tokens),
        scalar_lookup=scalar_lookup,
        channels=channels,
        in_fp32=in_fp32,
        num_warps=pipeline.num_warps,
        # A vector lookup goes through the pipeline, too, and takes as many stages again.
        num_stages=1 + pipeline.buffers * (1 if scalar_lookup else 2),
        shared_bytes=2 * pipeline.buffers * pipeline.tokens * row_bytes,
    )


def programs_at_once(tiles: Tiles, device: torch.device) -> int:
    """Return how many programs the GPU holds at a time, about; on a CPU (interpreted), 1."""
    if device.type != "cuda":
        return 1
    properties = torch.cuda.get_device_properties(device)
    shared_bytes = getattr(properties, "shared_memory_per_multiprocessor", 100 * 1024)
    # Beside the buffers go the query, the weights and 1 KiB that the system takes.
    by_memory = shared_bytes // (tiles.shared_bytes + 9 * 1024)
    registers = 168 if not tiles.in_fp32 and tiles.rows == _MIN_DOT else 216  # a thread, as they compile
    by_registers = _REGISTERS // (32 * tiles.num_warps * registers)
    return int(max(min(by_memory, by_registers), 1) * properties.multi_processor_count)


@lru_cache(maxsize=1024)
def split_count(steps: int, programs: int, places: int) -> int:
    """Return into how many parts each row's work is split.

    The model: places that are all taken share the memory bandwidth, so a round of programs lasts as many
    units as each has steps; a last round that takes few places is bound by latency instead. Splits cost a
    merge and their partial results.

    Args:
        steps: tiles (or blocks, if they are larger) in a row.
        programs: programs if nothing is split.
        places: programs that the GPU holds at a time.
    """
    best, least = 1, float("inf")
    for splits in range(1, min(steps, _MAX_SPLITS) + 1):
        rounds, rest = divmod(programs * splits, places)
        cost = ceil_div(steps, splits) * (rounds + (max(rest / places, _LEAST_LOAD) if rest else 0.0))
        if splits > 1:
            cost += _MERGE + _PARTIAL * programs * splits / places
        if cost < least:
            best, least = splits, cost
    return best


def columns_for_each_split(num_columns: int, tiles: Tiles, programs: int, device: torch.device) -> int:
    """Return how many table columns a program walks: enough programs to fill the GPU, in whole tiles."""
    if device.type != "cuda":
        return num_columns
    steps = ceil_div(num_columns, tiles.columns)
    splits = split_count(steps, programs, programs_at_once(tiles, device))
    return ceil_div(steps, splits) * tiles.columns
