# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Pack in Triton: each program reads a tile of codes and writes half as many bytes."""

import torch
import triton.language as tl

from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2

__all__ = ["aot_variants", "pack", "tile_of_bytes"]

_TILE_BYTES = 2048


@jit
def _pack_kernel(
    codes: tl.tensor,
    packed: tl.tensor,
    rows: tl.tensor,
    count: tl.tensor,
    num_bytes: tl.tensor,
    stride_row: tl.tensor,
    stride_column: tl.tensor,
    TILE_R: tl.constexpr,
    TILE_B: tl.constexpr,
) -> None:
    tiles_across = tl.cdiv(num_bytes, TILE_B)
    row = (tl.program_id(0) // tiles_across).to(tl.int64) * TILE_R + tl.arange(0, TILE_R)
    first = (tl.program_id(0) % tiles_across).to(tl.int64) * TILE_B
    index, byte = tl.arange(0, 2 * TILE_B), tl.arange(0, TILE_B)
    in_rows = (row < rows)[:, None]
    codes += 2 * first * stride_column
    at = (row * stride_row)[:, None] + (index.to(tl.int64) * stride_column)[None, :]
    inside = index < tl.minimum(count - 2 * first, 2 * TILE_B).to(tl.int32)
    nibbles = tl.load(codes + at, mask=in_rows & inside[None, :], other=0).to(tl.int32) & 15
    low, high = tl.split(tl.reshape(nibbles, [TILE_R, TILE_B, 2]))
    both = (low | (high << 4)).to(tl.uint8)
    inside = byte < tl.minimum(num_bytes - first, TILE_B).to(tl.int32)
    packed += first + (row * num_bytes)[:, None] + byte[None, :]
    tl.store(packed, both, mask=in_rows & inside[None, :])


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Return two codes in each byte, the first one in the low nibble; codes `[..., count]`, uint8 or int8."""
    count = codes.shape[-1]
    packed = codes.new_empty((*codes.shape[:-1], (count + 1) // 2), dtype=torch.uint8)
    if not packed.numel():
        return packed
    # Dense rows of whole bytes are one long row.
    one_row = count % 2 == 0 and codes.is_contiguous()
    rows = codes.reshape(1, -1) if one_row else codes.reshape(-1, count)
    num_bytes = (rows.shape[1] + 1) // 2
    tile_r, tile_b = tile_of_bytes(rows.shape[0], num_bytes)
    launch(
        _pack_kernel,
        (ceil_div(rows.shape[0], tile_r) * ceil_div(num_bytes, tile_b),),
        *(rows, packed, *rows.shape, num_bytes, *rows.stride()),
        device=codes.device,
        TILE_R=tile_r,
        TILE_B=tile_b,
    )
    return packed


def tile_of_bytes(rows: int, num_bytes: int) -> tuple[int, int]:
    """Return how many rows, and bytes of them, a program packs or unpacks."""
    tile_b = min(next_power_of_2(num_bytes), _TILE_BYTES)
    return min(next_power_of_2(rows), _TILE_BYTES // tile_b), tile_b


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: one long row, and short ones."""
    return [_variant(*each) for each in (("u8", 1, 1 << 20), ("i8", 4096, 64))]


def _variant(kind: str, rows: int, count: int) -> KernelVariant:
    tile_r, tile_b = tile_of_bytes(rows, count // 2)
    return KernelVariant(
        name=f"pack[{kind},{rows}x{count}]",
        kernel=_pack_kernel,
        types={"codes": f"*{kind}", "packed": "*u8"},
        constants={"stride_column": 1, "TILE_R": tile_r, "TILE_B": tile_b},
        aligned=frozenset({"count", "num_bytes", "stride_row"}),
    )
