# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Unpack in Triton: each program reads a tile of bytes and writes twice as many codes."""

import torch
import triton.language as tl

from dtk_kernels.quant.pack.triton_kernel import tile_of_bytes
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch

__all__ = ["aot_variants", "unpack"]


@jit
def _unpack_kernel(
    packed: tl.tensor,
    codes: tl.tensor,
    rows: tl.tensor,
    count: tl.tensor,
    num_bytes: tl.tensor,
    stride_row: tl.tensor,
    stride_column: tl.tensor,
    SIGNED: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_B: tl.constexpr,
) -> None:
    tiles_across = tl.cdiv(num_bytes, TILE_B)
    row = (tl.program_id(0) // tiles_across).to(tl.int64) * TILE_R + tl.arange(0, TILE_R)
    first = (tl.program_id(0) % tiles_across).to(tl.int64) * TILE_B
    index, byte = tl.arange(0, 2 * TILE_B), tl.arange(0, TILE_B)
    in_rows = (row < rows)[:, None]
    packed += first * stride_column
    at = (row * stride_row)[:, None] + (byte.to(tl.int64) * stride_column)[None, :]
    inside = byte < tl.minimum(num_bytes - first, TILE_B).to(tl.int32)
    both = tl.load(packed + at, mask=in_rows & inside[None, :], other=0).to(tl.int32)
    nibbles = tl.interleave(both & 15, both >> 4)
    if SIGNED:
        nibbles = (nibbles ^ 8) - 8
    out = codes + 2 * first + (row * count)[:, None] + index[None, :]
    inside = index < tl.minimum(count - 2 * first, 2 * TILE_B).to(tl.int32)
    tl.store(out, nibbles.to(codes.dtype.element_ty), mask=in_rows & inside[None, :])


def unpack(packed: torch.Tensor, count: int, *, signed: bool = False) -> torch.Tensor:
    """Return the low and the high nibble of each byte, one after the other.

    Args:
        packed: uint8 `[..., ceil(count / 2)]`.
        count: Codes in the last dim.
        signed: Whether they are integers, which become int8.
    """
    codes = packed.new_empty((*packed.shape[:-1], count), dtype=torch.int8 if signed else torch.uint8)
    if not codes.numel():
        return codes
    if count % 2 == 0 and packed.is_contiguous():
        rows, count = packed.reshape(1, -1), 2 * packed.numel()
    else:
        rows = packed.reshape(-1, packed.shape[-1])
    tile_r, tile_b = tile_of_bytes(*rows.shape)
    launch(
        _unpack_kernel,
        (ceil_div(rows.shape[0], tile_r) * ceil_div(rows.shape[1], tile_b),),
        *(rows, codes, rows.shape[0], count, rows.shape[1], *rows.stride()),
        device=packed.device,
        SIGNED=signed,
        TILE_R=tile_r,
        TILE_B=tile_b,
    )
    return codes


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: one long row, and short ones."""
    return [_variant(*each) for each in (("u8", 1, 1 << 20), ("i8", 4096, 64))]


def _variant(kind: str, rows: int, count: int) -> KernelVariant:
    tile_r, tile_b = tile_of_bytes(rows, count // 2)
    return KernelVariant(
        name=f"unpack[{kind},{rows}x{count}]",
        kernel=_unpack_kernel,
        types={"packed": "*u8", "codes": f"*{kind}"},
        constants={"stride_column": 1, "SIGNED": kind == "i8", "TILE_R": tile_r, "TILE_B": tile_b},
        aligned=frozenset({"count", "num_bytes", "stride_row"}),
    )
