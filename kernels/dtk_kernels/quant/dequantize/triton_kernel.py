# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Dequantise in Triton: one pass over codes and values; each scale is loaded once a tile."""

from collections.abc import Sequence

import torch
import triton.language as tl

from dtk_kernels.formats import FORMATS
from dtk_kernels.quant.triton_numbers import AS_INTEGERS, SCALE_KINDS, decoded, elements_of, scale_factors
from dtk_kernels.quant.triton_tiles import as_matrices, index_of, spread, tile_of, tiling_of
from dtk_kernels.triton_support import KernelVariant, jit, launch

__all__ = ["aot_variants", "dequantize"]


@jit(unspecialized=("blocks_down", "blocks_across"))
def _dequantize_kernel(
    codes: tl.tensor,
    scales: tl.tensor,
    shared: tl.tensor,
    result: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    block_rows: tl.tensor,
    block_columns: tl.tensor,
    blocks_down: tl.tensor,
    blocks_across: tl.tensor,
    stride_lead: tl.tensor,
    stride_row: tl.tensor,
    stride_column: tl.tensor,
    ELEMENTS: tl.constexpr,
    SCALE: tl.constexpr,
    ONE_SCALE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
) -> None:
    lead, row, in_row, column, in_column, mask, block, blocks_there, _part = tile_of(
        rows, columns, block_rows, block_columns, blocks_down, blocks_across, DOWN, ACROSS
    )
    at = lead * stride_lead + index_of(row, in_row, column, in_column, stride_row, stride_column)
    values = decoded(tl.load(codes + at, mask=mask, other=0).to(tl.int32), ELEMENTS)
    scale = tl.load(
        scales + block * (0 if ONE_SCALE else 1),
        mask=blocks_there,
        other=0,
    )
    factor = scale_factors(scale.to(tl.int32), tl.load(shared) if SCALE == 3 else 1.0, SCALE)
    out = index_of(lead * rows + row, in_row, column, in_column, columns, 1)
    tl.store(result + out, values * spread(factor, DOWN, ACROSS), mask=mask)


def dequantize(
    codes: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    tensor_scale: torch.Tensor | None,
) -> torch.Tensor:
    """Return the float32 values of the codes times their block's scale.

    Args:
        codes: `[..., rows, columns]`.
        scales: One for each block.
        format: Name in `FORMATS`.
        block: Rows and columns of a block, 0 for the whole dim; None for one block.
        tensor_scale: float32 `[]`, of NVFP4.
    """
    result = codes.new_empty(codes.shape, dtype=torch.float32)
    if not codes.numel():
        return result
    matrices, height, width = as_matrices(codes, block)
    tiling = tiling_of(matrices, height, width, whole_blocks=False)
    launch(
        _dequantize_kernel,
        (tiling.tiles,),
        matrices,
        scales.contiguous().view(AS_INTEGERS[scales.dtype]),
        result if tensor_scale is None else tensor_scale,
        result,
        *tiling.sizes,
        *matrices.stride(),
        device=codes.device,
        enable_fp_fusion=False,
        num_warps=tiling.num_warps,
        ELEMENTS=tuple(elements_of(format)),
        SCALE=SCALE_KINDS[scales.dtype],
        ONE_SCALE=block is None,
        DOWN=tiling.down.constants,
        ACROSS=tiling.across.constants,
    )
    return result


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: every dtype of scales, blocks of several shapes."""
    return [
        _variant("e4m3", (1, 128), torch.float32),
        _variant("e2m1", (1, 32), torch.float8_e8m0fnu),
        _variant("e2m1", (1, 16), torch.float8_e4m3fn),
        _variant("e5m2", (128, 128), torch.float32),
        _variant("int8", (1, 0), torch.bfloat16),
        _variant("e3m2", (32, 1), torch.float8_e8m0fnu),
        _variant("int4", None, torch.float32),
    ]


def _variant(format: str, block: tuple[int, int] | None, scale: torch.dtype) -> KernelVariant:
    matrices, height, width = as_matrices(torch.empty((4096, 4096), device="meta"), block)
    tiling = tiling_of(matrices, height, width, whole_blocks=False)
    scale_name = {
        torch.float32: "fp32",
        torch.bfloat16: "bf16",
        torch.float8_e8m0fnu: "e8m0",
        torch.float8_e4m3fn: "nvfp4",
    }[scale]
    kind = {torch.int32: "i32", torch.int16: "i16", torch.uint8: "u8"}[AS_INTEGERS[scale]]
    size = "tensor" if block is None else f"{block[0] or 'rows'}x{block[1] or 'columns'}"
    return KernelVariant(
        name=f"dequantize[{format},{size},{scale_name}]",
        kernel=_dequantize_kernel,
        types={
            "codes": "*i8" if FORMATS[format].is_integer else "*u8",
            "scales": f"*{kind}",
            **dict.fromkeys(("shared", "result"), "*fp32"),
        },
        constants={
            "stride_column": 1,
            "ELEMENTS": tuple(elements_of(format)),
            "SCALE": SCALE_KINDS[scale],
            "ONE_SCALE": block is None,
            "DOWN": tiling.down.constants,
            "ACROSS": tiling.across.constants,
        },
        num_warps=tiling.num_warps,
        aligned=frozenset({"rows", "columns", "block_columns", "stride_lead", "stride_row"}),
        fp_fusion=False,
    )
