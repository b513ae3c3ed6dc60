# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Packed linear in Triton: weights become float32 in registers, activations stay as they are.

Products go through tensor cores as three TF32 ones, which is about float32's precision. Made for few rows of
activations, where reading the weights is all; large batches are left to better kernels.
"""

import torch
import triton.language as tl

from dtk_kernels.gemm.triton_operands import (
    as_stored,
    decoding,
    load_scales,
    load_values,
    scale_kind,
    scale_type,
    store_tile,
    tile_of,
)
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2, stride_unit

__all__ = ["aot_variants", "packed_linear"]

_TILE_K = 32  # more spills registers
_NUM_WARPS, _NUM_STAGES = 4, 3
_SIZES = ("rows", "columns", "depth", "block_size")
_STRIDES = ("stride_x", "stride_weight", "stride_scale")


@jit(unspecialized=(*_SIZES, *_STRIDES))
def _packed_linear_kernel(
    x: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    bias: tl.tensor,
    result: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    block_size: tl.tensor,
    stride_x: tl.tensor,
    stride_weight: tl.tensor,
    stride_scale: tl.tensor,
    STRIDE_UNIT: tl.constexpr,
    FORMAT: tl.constexpr,
    SCALE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    WHOLE_TILES: tl.constexpr,
) -> None:
    first_row, first_column = tile_of(rows, columns, TILE_M, TILE_N)
    row, column = first_row + tl.arange(0, TILE_M), first_column + tl.arange(0, TILE_N)
    in_rows, in_columns = row < rows, column < columns
    x_at = x + row.to(tl.int64) * stride_x
    weight_at = weight + column.to(tl.int64) * stride_weight * STRIDE_UNIT
    scale_at = scales + column.to(tl.int64) * stride_scale
    total = tl.zeros([TILE_M, TILE_N], tl.float32)
    for first in range(0, depth, TILE_K):
        index = first + tl.arange(0, TILE_K)
        values = tl.load(
            x_at[:, None] + index[None, :], mask=in_rows[:, None] & (index < depth)[None, :], other=0.0
        )
        w = load_values(weight_at, in_columns, first, depth, TILE_K, WHOLE_TILES, *FORMAT).to(tl.float32)
        inside = in_columns[:, None] & (index < depth)[None, :]
        w *= load_scales(scale_at[:, None] + (index // block_size)[None, :], inside, SCALE)
        total += tl.dot(values, tl.trans(w), input_precision="tf32x3")
    if HAS_BIAS:
        total += tl.load(bias + column, mask=in_columns, other=0.0)[None, :]
    store_tile(result, total, row, column, rows, columns)


def packed_linear(
    x: torch.Tensor,
    packed_weight: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block_size: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `x @ W.T + bias`, float32 `[..., N]`.

    Args:
        x: `[..., K]` float32.
        packed_weight: `[N, bytes]`.
        scales: `[N, K / block_size]`.
        format: "e2m1" or "int8".
        block_size: Weights along K that share a scale.
        bias: `[N]` float32.
    """
    depth, columns = x.shape[-1], packed_weight.shape[0]
    flat = x.reshape(x.shape[:-1].numel(), depth)
    flat = flat if flat.stride(1) == 1 else flat.contiguous()
    rows = flat.shape[0]
    result = x.new_empty((*x.shape[:-1], columns))
    unit = stride_unit(1, packed_weight.stride(0))
    constants = _constants(scales.dtype, rows=rows, columns=columns, depth=depth, has_bias=bias is not None)
    launch(
        _packed_linear_kernel,
        (ceil_div(rows, constants["TILE_M"]) * ceil_div(columns, constants["TILE_N"]),),
        *(flat, packed_weight, as_stored(scales), result if bias is None else bias.contiguous(), result),
        *(rows, columns, depth, block_size),
        *(flat.stride(0), packed_weight.stride(0) // unit, scales.stride(0)),
        device=x.device,
        STRIDE_UNIT=unit,
        FORMAT=decoding(format),
        num_warps=_NUM_WARPS,
        num_stages=_NUM_STAGES,
        **constants,
    )
    return result


def _constants(scale: torch.dtype, *, rows: int, columns: int, depth: int, has_bias: bool) -> dict[str, int]:
    """Compile-time numbers: small tiles of columns for few rows, so that all multiprocessors read weights."""
    few = rows <= 16
    return {
        "SCALE": scale_kind(scale),
        "HAS_BIAS": has_bias,
        "TILE_M": 16 if few else 32,
        "TILE_N": min(next_power_of_2(columns, at_least=16), 16 if few else 32),
        "TILE_K": _TILE_K,
        "WHOLE_TILES": depth % _TILE_K == 0,
    }


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: both formats, one row and many, both kinds of scales."""
    return [
        _variant(*each)
        for each in (
            ("e2m1", torch.float32, 1, False),
            ("e2m1", torch.float8_e8m0fnu, 1, True),
            ("int8", torch.float32, 1, False),
            ("e2m1", torch.float8_e8m0fnu, 64, False),
            ("int8", torch.float32, 64, True),
        )
    ]


def _variant(format: str, scale: torch.dtype, rows: int, has_bias: bool) -> KernelVariant:
    constants = _constants(scale, rows=rows, columns=4096, depth=4096, has_bias=has_bias)
    scale_name = "fp32" if scale == torch.float32 else "e8m0"
    return KernelVariant(
        name=f"packed_linear[{format},{scale_name},m{rows}{',bias' if has_bias else ''}]",
        kernel=_packed_linear_kernel,
        types={
            **dict.fromkeys(("x", "bias", "result"), "*fp32"),
            "weight": "*i8" if format == "int8" else "*u8",
            "scales": f"*{scale_type(scale)}",
        },
        constants={**constants, "FORMAT": decoding(format), "STRIDE_UNIT": 16},
        num_warps=_NUM_WARPS,
        num_stages=_NUM_STAGES,
    )
