# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Scaled matrix product in Triton: a program computes a tile of the result, block after block along K.

Three ways to multiply, see `method_of`: `dot` on FP8 tensor cores, `dot_scaled` on block-scaled ones, and an
emulation of both elsewhere. There, codes become float16, which holds every value of every format, and the
scales multiply each block's float32 sums, so that products and scales are as exact as float32. Not tuned for
long K with few rows and columns (no split of K).
"""

from typing import Any

import torch
import triton.language as tl

from dtk_kernels.gemm._operands import is_packed
from dtk_kernels.gemm.triton_operands import (
    as_stored,
    decoding,
    load_bytes,
    load_scales,
    load_values,
    scale_kind,
    scale_type,
    store_tile,
    tile_of,
)
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2, stride_unit

__all__ = ["METHODS", "aot_variants", "method_of", "scaled_matmul"]

METHODS = ("fp16", "fp8", "scaled")

_FP8 = {"e4m3", "e5m2"}
_SIZES = ("rows", "columns", "depth", "block_size")
_STRIDES = ("stride_a", "stride_b", "stride_a_scale", "stride_b_scale")
_NUM_WARPS, _NUM_STAGES = 4, 3


@jit
def _as_fp8(codes: tl.tensor, MANTISSA: tl.constexpr) -> tl.tensor:
    if MANTISSA == 3:
        return codes.to(tl.float8e4nv, bitcast=True)
    else:  # noqa: RET505 - Triton visits what follows a return, too
        return codes.to(tl.float8e5, bitcast=True)


@jit(unspecialized=(*_SIZES, *_STRIDES))
def _block_products_kernel(
    a: tl.tensor,
    a_scales: tl.tensor,
    b: tl.tensor,
    b_scales: tl.tensor,
    result: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    block_size: tl.tensor,
    stride_a: tl.tensor,
    stride_b: tl.tensor,
    stride_a_scale: tl.tensor,
    stride_b_scale: tl.tensor,
    STRIDE_UNIT: tl.constexpr,
    A_FORMAT: tl.constexpr,
    B_FORMAT: tl.constexpr,
    A_SCALE: tl.constexpr,
    B_SCALE: tl.constexpr,
    FP8: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    WHOLE_TILES: tl.constexpr,
) -> None:
    first_row, first_column = tile_of(rows, columns, TILE_M, TILE_N)
    row, column = first_row + tl.arange(0, TILE_M), first_column + tl.arange(0, TILE_N)
    in_rows, in_columns = row < rows, column < columns
    a_at = a + row.to(tl.int64) * stride_a * STRIDE_UNIT
    b_at = b + column.to(tl.int64) * stride_b * STRIDE_UNIT
    a_scale_at = a_scales + row.to(tl.int64) * stride_a_scale
    b_scale_at = b_scales + column.to(tl.int64) * stride_b_scale
    total = tl.zeros([TILE_M, TILE_N], tl.float32)
    for first in range(0, depth, TILE_K):
        if FP8:
            x = _as_fp8(load_bytes(a_at, in_rows, first, depth, TILE_K, WHOLE_TILES), A_FORMAT[1])
            w = _as_fp8(load_bytes(b_at, in_columns, first, depth, TILE_K, WHOLE_TILES), B_FORMAT[1])
        else:
            x = load_values(a_at, in_rows, first, depth, TILE_K, WHOLE_TILES, *A_FORMAT)
            w = load_values(b_at, in_columns, first, depth, TILE_K, WHOLE_TILES, *B_FORMAT)
        block = first // block_size
        x_scale = load_scales(a_scale_at + block, in_rows, A_SCALE)
        w_scale = load_scales(b_scale_at + block, in_columns, B_SCALE)
        total += tl.dot(x, tl.trans(w)) * (x_scale[:, None] * w_scale[None, :])
    store_tile(result, total, row, column, rows, columns)


@jit(unspecialized=(*_SIZES, *_STRIDES))
def _scaled_products_kernel(
    a: tl.tensor,
    a_scales: tl.tensor,
    b: tl.tensor,
    b_scales: tl.tensor,
    result: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    block_size: tl.tensor,
    stride_a: tl.tensor,
    stride_b: tl.tensor,
    stride_a_scale: tl.tensor,
    stride_b_scale: tl.tensor,
    STRIDE_UNIT: tl.constexpr,
    A_NAME: tl.constexpr,
    B_NAME: tl.constexpr,
    A_PER_BYTE: tl.constexpr,
    B_PER_BYTE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    WHOLE_TILES: tl.constexpr,
) -> None:
    first_row, first_column = tile_of(rows, columns, TILE_M, TILE_N)
    row, column = first_row + tl.arange(0, TILE_M), first_column + tl.arange(0, TILE_N)
    in_rows, in_columns = row < rows, column < columns
    a_at = a + row.to(tl.int64) * stride_a * STRIDE_UNIT
    b_at = b + column.to(tl.int64) * stride_b * STRIDE_UNIT
    a_scale_at = a_scales + row.to(tl.int64) * stride_a_scale
    b_scale_at = b_scales + column.to(tl.int64) * stride_b_scale
    total = tl.zeros([TILE_M, TILE_N], tl.float32)
    for first in range(0, depth, TILE_K):
        x = load_bytes(
            a_at, in_rows, first // A_PER_BYTE, depth // A_PER_BYTE, TILE_K // A_PER_BYTE, WHOLE_TILES
        )
        w = load_bytes(
            b_at, in_columns, first // B_PER_BYTE, depth // B_PER_BYTE, TILE_K // B_PER_BYTE, WHOLE_TILES
        )
        block, num_blocks = first // BLOCK, depth // BLOCK
        x_scale = load_bytes(a_scale_at, in_rows, block, num_blocks, TILE_K // BLOCK, WHOLE_TILES)
        w_scale = load_bytes(b_scale_at, in_columns, block, num_blocks, TILE_K // BLOCK, WHOLE_TILES)
        if BLOCK == 16:  # Triton takes bytes for E8M0
            x_scale, w_scale = _as_fp8(x_scale, 3), _as_fp8(w_scale, 3)
        total = tl.dot_scaled(x, x_scale, A_NAME, tl.trans(w), w_scale, B_NAME, total)
    store_tile(result, total, row, column, rows, columns)


def method_of(
    a_format: str, b_format: str, a_scale: torch.dtype, b_scale: torch.dtype, block_size: int, capability: int
) -> str:
    """Return how a GPU of that compute capability (90 for 9.0) multiplies: one of `METHODS`.

    - "scaled": block-scaled tensor cores, which take E8M0 scales of 32 elements, or for E2M1 E4M3 scales of
      16.
    - "fp8": FP8 tensor cores, whose sums over at most 128 elements are scaled in float32.
    - "fp16": all others.
    """
    formats, scales = {a_format, b_format}, {a_scale, b_scale}
    if capability >= 100 and formats <= {"e2m1", *_FP8}:
        micro = scales == {torch.float8_e8m0fnu} and block_size == 32
        nv = scales == {torch.float8_e4m3fn} and block_size == 16 and formats == {"e2m1"}
        if micro or nv:
            return "scaled"
    # FP8 instructions take 32 elements at least.
    return "fp8" if capability >= 90 and formats <= _FP8 and block_size % 32 == 0 else "fp16"


def scaled_matmul(
    a_codes: torch.Tensor,
    a_scales: torch.Tensor,
    b_codes: torch.Tensor,
    b_scales: torch.Tensor,
    a_format: str,
    b_format: str,
    *,
    block_size: int,
    method: str | None = None,
) -> torch.Tensor:
    """Return `A @ B.T` of the dequantised operands, float32 `[M, N]`.

    Args:
        a_codes: `[M, bytes]`.
        a_scales: `[M, K / block_size]`.
        b_codes: `[N, bytes]`.
        b_scales: `[N, K / block_size]`.
        a_format: Name in `FORMATS`.
        b_format: Likewise.
        block_size: Elements along K that share a scale.
        method: One of `METHODS` that the GPU and the formats allow; None takes the fastest.
    """
    depth = a_scales.shape[1] * block_size
    rows, columns = a_codes.shape[0], b_codes.shape[0]
    if method is None:
        device = a_codes.device
        major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
        capability = 10 * major + minor
        method = method_of(a_format, b_format, a_scales.dtype, b_scales.dtype, block_size, capability)
    result = a_scales.new_empty((rows, columns), dtype=torch.float32)
    unit = stride_unit(1, a_codes.stride(0), b_codes.stride(0))
    constants = _constants(
        method,
        a_format,
        b_format,
        a_scales.dtype,
        b_scales.dtype,
        block_size=block_size,
        depth=depth,
        rows=rows,
        columns=columns,
    )
    num_tiles = ceil_div(rows, constants["TILE_M"]) * ceil_div(columns, constants["TILE_N"])
    launch(
        _scaled_products_kernel if method == "scaled" else _block_products_kernel,
        (num_tiles,),
        a_codes,
        as_stored(a_scales),
        b_codes,
        as_stored(b_scales),
        result,
        *(rows, columns, depth, block_size),
        *(a_codes.stride(0) // unit, b_codes.stride(0) // unit, a_scales.stride(0), b_scales.stride(0)),
        device=a_codes.device,
        STRIDE_UNIT=unit,
        num_warps=_NUM_WARPS,
        num_stages=_NUM_STAGES,
        **constants,
    )
    return result


def _constants(
    method: str,
    a_format: str,
    b_format: str,
    a_scale: torch.dtype,
    b_scale: torch.dtype,
    *,
    block_size: int,
    depth: int,
    rows: int,
    columns: int,
) -> dict[str, Any]:
    """Compile-time parameters, without the stride unit."""
    # Fewer rows are padded: Triton would not use FP8 or block-scaled instructions, but convert and emulate.
    tile_m = {"fp16": min(next_power_of_2(rows, at_least=16), 64), "fp8": 64, "scaled": 128}[method]
    whole = depth % 128 == 0
    widest = 128 if method == "fp8" or (method == "scaled" and whole) else 64  # wider ones would spill
    tile_n = min(next_power_of_2(columns, at_least=16), widest)
    if method == "scaled":
        per_byte = [2 if is_packed(format) else 1 for format in (a_format, b_format)]
        return {
            "A_NAME": a_format, "B_NAME": b_format, "A_PER_BYTE": per_byte[0], "B_PER_BYTE": per_byte[1],
            "BLOCK": block_size, "TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": 128,
            "WHOLE_TILES": whole,
        }  # fmt: skip
    # A tile must not cross blocks; a row of one block may have any length.
    joint = 128 if block_size == depth else block_size & -block_size
    tile_k = min(joint, 128 if method == "fp8" else 32)
    return {
        "A_FORMAT": decoding(a_format),
        "B_FORMAT": decoding(b_format),
        "A_SCALE": scale_kind(a_scale),
        "B_SCALE": scale_kind(b_scale),
        "FP8": method == "fp8",
        "TILE_M": tile_m,
        "TILE_N": tile_n,
        "TILE_K": tile_k,
        "WHOLE_TILES": depth % tile_k == 0,
    }


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: every method, every format, every kind of scale."""
    fp32, e8m0, e4m3 = torch.float32, torch.float8_e8m0fnu, torch.float8_e4m3fn
    return [
        _variant(*each)
        for each in (
            ("fp16", "e4m3", "e4m3", fp32, 128),
            ("fp16", "e2m1", "e2m1", e8m0, 32),
            ("fp16", "e2m1", "e2m1", e4m3, 16),
            ("fp16", "e5m2", "e2m1", torch.bfloat16, 32),
            ("fp16", "int8", "int4", fp32, 64),
            ("fp16", "e3m2", "e2m3", e8m0, 32),
            ("fp8", "e4m3", "e4m3", fp32, 128),
            ("fp8", "e5m2", "e4m3", fp32, 32),
            ("fp8", "e4m3", "e4m3", fp32, 128, 1),
            ("scaled", "e2m1", "e2m1", e8m0, 32),
            ("scaled", "e2m1", "e2m1", e4m3, 16),
            ("scaled", "e4m3", "e2m1", e8m0, 32),
            ("scaled", "e5m2", "e4m3", e8m0, 32),
            ("scaled", "e2m1", "e2m1", e8m0, 32, 1),
            ("scaled", "e5m2", "e4m3", e8m0, 32, 64, 4000),
        )
    ]


def _variant(
    method: str,
    a_format: str,
    b_format: str,
    scale: torch.dtype,
    block_size: int,
    rows: int = 4096,
    depth: int = 4096,
) -> KernelVariant:
    scale_name = {torch.float8_e8m0fnu: "e8m0", torch.float8_e4m3fn: "e4m3", torch.bfloat16: "bf16"}
    kinds = ["i8" if format == "int8" else "u8" for format in (a_format, b_format)]
    constants = _constants(
        method, a_format, b_format, scale, scale, block_size=block_size, depth=depth, rows=rows,
        columns=4096,
    )  # fmt: skip
    shape = "" if rows == depth == 4096 else f",m{rows},k{depth}"
    name = f"{method},{a_format},{b_format},{scale_name.get(scale, 'fp32')},{block_size}{shape}"
    return KernelVariant(
        name=f"scaled_matmul[{name}]",
        kernel=_scaled_products_kernel if method == "scaled" else _block_products_kernel,
        types={
            "a": f"*{kinds[0]}",
            "b": f"*{kinds[1]}",
            **dict.fromkeys(("a_scales", "b_scales"), f"*{scale_type(scale)}"),
            "result": "*fp32",
        },
        constants={**constants, "STRIDE_UNIT": 16},
        num_warps=_NUM_WARPS,
        num_stages=_NUM_STAGES,
        min_capability={"fp16": 80, "fp8": 90, "scaled": 100}[method],
    )
