# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Quantise in Triton, and fake quantise: memory is passed over once where a tile holds whole blocks.

Larger blocks take one pass more, for the largest magnitudes of their parts, and so does the tensor's scale of
NVFP4. Programs share nothing and keep no order.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl

from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._blocks import scales_shape
from dtk_kernels.quant._scales import scale_dtype
from dtk_kernels.quant.triton_numbers import (
    AS_INTEGERS,
    ScaleRule,
    decoded,
    elements_of,
    float_bits,
    rounded,
    scale_codes,
    scale_factors,
    scale_rule,
    shared_scale,
    storable,
)
from dtk_kernels.quant.triton_tiles import Tiling, as_matrices, index_of, spread, tile_of, tiling_of
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2, triton_type

__all__ = ["aot_variants", "fake_quantize_variants", "quantize", "rounded_to_format"]

_REDUCED_AT_ONCE = 1024


@jit(unspecialized=("blocks_down", "blocks_across"))
def _largest_magnitudes_kernel(
    x: tl.tensor,
    partials: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    block_rows: tl.tensor,
    block_columns: tl.tensor,
    blocks_down: tl.tensor,
    blocks_across: tl.tensor,
    stride_lead: tl.tensor,
    stride_row: tl.tensor,
    stride_column: tl.tensor,
    FINITE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
) -> None:
    lead, row, in_row, column, in_column, mask, _block, blocks_there, part = tile_of(
        rows, columns, block_rows, block_columns, blocks_down, blocks_across, DOWN, ACROSS
    )
    at = lead * stride_lead + index_of(row, in_row, column, in_column, stride_row, stride_column)
    size = float_bits(tl.load(x + at, mask=mask, other=0)) & 0x7FFFFFFF
    if FINITE:
        size = tl.where(size < 0x7F800000, size, 0)
    size = tl.reshape(size, [DOWN[0], DOWN[1], ACROSS[0], ACROSS[1]])
    amax = tl.max(tl.max(size, axis=3), axis=1)
    tl.store(partials + part, amax, mask=blocks_there)


@jit(unspecialized=("blocks", "parts"))
def _scales_kernel(
    partials: tl.tensor,
    shared: tl.tensor,
    scales: tl.tensor,
    blocks: tl.tensor,
    parts: tl.tensor,
    FOR_TENSOR: tl.constexpr,
    RULE: tl.constexpr,
    TILE_B: tl.constexpr,
    TILE_P: tl.constexpr,
) -> None:
    block = tl.program_id(0).to(tl.int64) * TILE_B + tl.arange(0, TILE_B)
    there = block < blocks
    amax = tl.zeros([TILE_B], tl.int32)
    for first in range(0, parts, TILE_P):
        part = first + tl.arange(0, TILE_P)
        mask = there[:, None] & (part < parts)[None, :]
        sizes = tl.load(partials + block[:, None] * parts + part[None, :], mask=mask, other=0)
        amax = tl.maximum(amax, tl.max(sizes, axis=1))
    if FOR_TENSOR:
        tl.store(scales + block, shared_scale(amax, RULE[1]), mask=there)
    else:
        factor = tl.load(shared) if RULE[0] == 3 else 1.0
        code = scale_codes(amax, factor, RULE)
        tl.store(scales + block, code.to(scales.dtype.element_ty), mask=there)


@jit(unspecialized=("blocks_down", "blocks_across"))
def _quantize_kernel(
    x: tl.tensor,
    random_bits: tl.tensor,
    shared: tl.tensor,
    scales: tl.tensor,
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
    RULE: tl.constexpr,
    STOCHASTIC: tl.constexpr,
    FAKE: tl.constexpr,
    ONE_PASS: tl.constexpr,
    ONE_SCALE: tl.constexpr,
    DOWN: tl.constexpr,
    ACROSS: tl.constexpr,
) -> None:
    lead, row, in_row, column, in_column, mask, block, blocks_there, _part = tile_of(
        rows, columns, block_rows, block_columns, blocks_down, blocks_across, DOWN, ACROSS
    )
    at = lead * stride_lead + index_of(row, in_row, column, in_column, stride_row, stride_column)
    bits = float_bits(tl.load(x + at, mask=mask, other=0))
    scales += block * (0 if ONE_SCALE else 1)
    tensor_scale = tl.load(shared) if RULE[0] == 3 else 1.0
    if ONE_PASS:
        size = tl.reshape(bits & 0x7FFFFFFF, [DOWN[0], DOWN[1], ACROSS[0], ACROSS[1]])
        scale = scale_codes(tl.max(tl.max(size, axis=3), axis=1), tensor_scale, RULE)
        if not FAKE:
            tl.store(scales, scale.to(scales.dtype.element_ty), mask=blocks_there)
    else:
        scale = tl.load(scales, mask=blocks_there, other=0).to(tl.int32)
    factor = scale_factors(scale, tensor_scale, RULE[0])
    usable = (factor == factor) & (factor != 0.0)
    values = bits.to(tl.float32, bitcast=True)
    if RULE[0] == 2:
        # The reciprocal of a power of two is one; products with both round alike.
        exponent = 254 - scale
        reciprocal = tl.where(exponent == 0, 0x00400000, exponent << 23).to(tl.float32, bitcast=True)
        values = values * spread(tl.where(usable, reciprocal, 1.0), DOWN, ACROSS)
    else:
        values = tl.div_rn(values, spread(tl.where(usable, factor, 1.0), DOWN, ACROSS))
    # Results are dense, as are random bits.
    out = index_of(lead * rows + row, in_row, column, in_column, columns, 1)
    noise = bits
    if STOCHASTIC:
        noise = tl.load(random_bits + out, mask=mask, other=0)
    code = rounded(values.to(tl.int32, bitcast=True), noise, ELEMENTS, STOCHASTIC)
    code = tl.where(spread(usable.to(tl.int32), DOWN, ACROSS) != 0, code, 0)
    if FAKE:
        value = decoded(code, ELEMENTS) * spread(factor, DOWN, ACROSS)
        tl.store(result + out, storable(value, result), mask=mask)
    else:
        tl.store(result + out, code.to(result.dtype.element_ty), mask=mask)


def quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return codes, block scales and the tensor's scale (1 unless the scale format is nvfp4).

    Args:
        x: `[..., rows, columns]`.
        format: Name in `FORMATS`.
        block: Rows and columns of a block, 0 for the whole dim; None for one block.
        scale_format: Name in `SCALE_FORMATS`.
        rounding: "nearest" or "stochastic", which the random bits say already.
        random_bits: int32 in the shape of `x`, or None.
    """
    codes = x.new_empty(x.shape, dtype=torch.int8 if FORMATS[format].is_integer else torch.uint8)
    return codes, *rounded_to_format(x, codes, format, block, scale_format, random_bits, fake=False)


def rounded_to_format(
    x: torch.Tensor,
    result: torch.Tensor,
    format: str,
    block: Sequence[int] | None,
    scale_format: str,
    random_bits: torch.Tensor | None,
    *,
    fake: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fill `result` with codes, or with values if `fake`; return block scales and the tensor's scale.

    Where scales are not needed for values, they are not written.
    """
    scales = x.new_empty(scales_shape(x.shape, block), dtype=scale_dtype(scale_format))
    rule = scale_rule(format, scale_format, scales.dtype)
    shared = _tensor_scale(x, rule) if scale_format == "nvfp4" else _one(x, needed=not fake)
    stored = scales.view(AS_INTEGERS[scales.dtype])
    if not x.numel():
        if block is None and not fake:
            _reduce(x.new_empty(0, dtype=torch.int32), shared, stored, rule, blocks=1, parts=0)
        return scales, shared
    matrices, height, width = as_matrices(x, block)
    tiling = tiling_of(matrices, height, width)
    one_pass = tiling.parts == 1 and not (block is None and tiling.lead > 1)
    if not one_pass:
        partials = _partials(matrices, tiling, finite=False)
        blocks = stored.numel()
        _reduce(partials, shared, stored, rule, blocks=blocks, parts=len(partials) // blocks)
    launch(
        _quantize_kernel,
        (tiling.tiles,),
        _as_loaded(matrices),
        stored if random_bits is None else random_bits.contiguous(),
        shared,
        stored,
        _as_loaded(result),
        *tiling.sizes,
        *matrices.stride(),
        device=x.device,
        enable_fp_fusion=False,
        num_warps=tiling.num_warps,
        **_constants(
            tiling, format, rule, stochastic=random_bits is not None, fake=fake, one_pass=one_pass,
            one_scale=block is None,
        ),
    )  # fmt: skip
    return scales, shared


def _one(x: torch.Tensor, *, needed: bool) -> torch.Tensor:
    return x.new_ones((), dtype=torch.float32) if needed else x.new_empty((), dtype=torch.float32)


def _as_loaded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(AS_INTEGERS[tensor.dtype]) if tensor.dtype in AS_INTEGERS else tensor


def _constants(
    tiling: Tiling,
    format: str,
    rule: ScaleRule,
    *,
    stochastic: bool,
    fake: bool,
    one_pass: bool = True,
    one_scale: bool = False,
) -> dict[str, Any]:
    return {
        "ELEMENTS": tuple(elements_of(format)),
        "RULE": tuple(rule),
        "STOCHASTIC": stochastic,
        "FAKE": fake,
        "ONE_PASS": one_pass,
        "ONE_SCALE": one_scale,
        "DOWN": tiling.down.constants,
        "ACROSS": tiling.across.constants,
    }


def _tensor_scale(x: torch.Tensor, rule: ScaleRule) -> torch.Tensor:
    """The float32 scale `[]` that the blocks of NVFP4 share."""
    shared = x.new_empty((), dtype=torch.float32)
    partials = x.new_empty(0, dtype=torch.int32)
    if x.numel():
        matrices, height, width = as_matrices(x, None)
        partials = _partials(matrices, tiling_of(matrices, height, width, whole_blocks=False), finite=True)
    _reduce(partials, shared, shared.view(torch.int32), rule, blocks=1, parts=len(partials), for_tensor=True)
    return shared


def _partials(matrices: torch.Tensor, tiling: Tiling, *, finite: bool) -> torch.Tensor:
    """The largest magnitudes of the parts of blocks, block after block."""
    partials = matrices.new_empty(tiling.blocks * tiling.parts, dtype=torch.int32)
    launch(
        _largest_magnitudes_kernel,
        (tiling.tiles,),
        _as_loaded(matrices),
        partials,
        *tiling.sizes,
        *matrices.stride(),
        device=matrices.device,
        enable_fp_fusion=False,
        num_warps=tiling.num_warps,
        FINITE=finite,
        DOWN=tiling.down.constants,
        ACROSS=tiling.across.constants,
    )
    return partials


def _reduce(
    partials: torch.Tensor,
    shared: torch.Tensor,
    scales: torch.Tensor,
    rule: ScaleRule,
    *,
    blocks: int,
    parts: int,
    for_tensor: bool = False,
) -> None:
    """Turn the largest magnitudes of each block's parts into its scale."""
    tile_p = min(next_power_of_2(parts), _REDUCED_AT_ONCE)
    tile_b = min(next_power_of_2(blocks), _REDUCED_AT_ONCE // tile_p)
    launch(
        _scales_kernel,
        (ceil_div(blocks, tile_b),),
        *(partials, shared, scales, blocks, parts),
        device=scales.device,
        enable_fp_fusion=False,
        FOR_TENSOR=for_tensor,
        RULE=tuple(rule),
        TILE_B=tile_b,
        TILE_P=tile_p,
    )


_Layout = tuple[torch.dtype, str, tuple[int, int] | None, str]


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: both kinds of rounding, every scale, all kernels."""
    fp32, fp16, bf16 = torch.float32, torch.float16, torch.bfloat16
    return [
        _variant("quantize", (bf16, "e4m3", (1, 128), "fp32")),
        _variant("quantize", (bf16, "e2m1", (1, 16), "nvfp4"), stochastic=True),
        _variant("quantize", (fp16, "e2m1", (1, 32), "e8m0")),
        _variant("quantize", (fp32, "e3m2", (32, 1), "e8m0_even")),
        _variant("quantize", (bf16, "e5m2", (128, 128), "fp32"), stochastic=True),
        _variant("quantize", (fp32, "int8", (1, 0), "bf16")),
        _variant("quantize", (bf16, "int4", (24, 24), "fp32"), columns=1000),
        _variant("quantize", (bf16, "e2m3", (1, 32), "e8m0_rceil"), transposed=True),
        _variant("quantize", (bf16, "e4m3", None, "fp32")),
        _variant("quantize", (bf16, "e4m3", None, "fp32"), kernel=_largest_magnitudes_kernel),
        _variant("quantize", (fp32, "int8", (0, 1), "fp32"), kernel=_largest_magnitudes_kernel),
        *(_scales_variant(*each) for each in ((1, 1 << 14, "nvfp4", True), (4096, 32, "e8m0_ceil", False))),
    ]


def fake_quantize_variants() -> list[KernelVariant]:
    """The same for fake quantise."""
    fp32, fp16, bf16 = torch.float32, torch.float16, torch.bfloat16
    return [
        _variant("fake_quantize", (bf16, "e4m3", (1, 128), "fp32"), fake=True),
        _variant("fake_quantize", (bf16, "e2m1", (1, 32), "e8m0"), fake=True),
        _variant("fake_quantize", (bf16, "e2m1", (1, 16), "nvfp4"), fake=True),
        _variant("fake_quantize", (fp32, "e2m1", (1, 16), "nvfp4"), fake=True, stochastic=True),
        _variant("fake_quantize", (fp16, "e5m2", (128, 128), "fp32"), fake=True),
        _variant("fake_quantize", (bf16, "int8", (1, 0), "bf16"), fake=True),
        _variant("fake_quantize", (fp32, "e4m3", (128, 1), "fp32"), fake=True),
        _variant("fake_quantize", (fp32, "e4m3", None, "fp32"), fake=True),
    ]


def _variant(
    operation: str,
    layout: _Layout,
    *,
    kernel: Any = _quantize_kernel,
    stochastic: bool = False,
    fake: bool = False,
    transposed: bool = False,
    columns: int = 4096,
) -> KernelVariant:
    dtype, format, block, scale_format = layout
    x = torch.empty((4096, columns), dtype=dtype, device="meta")
    matrices, height, width = as_matrices(x.T if transposed else x, block)
    tiling = tiling_of(matrices, height, width)
    rule = scale_rule(format, scale_format, scale_dtype(scale_format))
    kinds = {torch.float32: "i32", torch.float16: "fp16", torch.bfloat16: "i16"}
    codes = "i8" if FORMATS[format].is_integer else "u8"
    types = {"x": f"*{kinds[dtype]}", "partials": "*i32"}
    constants: dict[str, Any] = {
        "FINITE": False,
        "DOWN": tiling.down.constants,
        "ACROSS": tiling.across.constants,
    }
    if kernel is _quantize_kernel:
        types = {
            "x": f"*{kinds[dtype]}",
            "random_bits": "*i32",
            "shared": "*fp32",
            "scales": {0: "*i32", 1: "*i16"}.get(rule.kind, "*u8"),
            "result": f"*{kinds[dtype] if fake else codes}",
        }
        constants = _constants(
            tiling, format, rule, stochastic=stochastic, fake=fake, one_pass=tiling.parts == 1,
            one_scale=block is None,
        )  # fmt: skip
    size = "tensor" if block is None else f"{block[0] or 'rows'}x{block[1] or 'columns'}"
    marks = [triton_type(dtype), format, size, scale_format]
    marks += ["stochastic"] * stochastic + ["transposed"] * transposed
    marks += ["magnitudes"] * (kernel is not _quantize_kernel)
    return KernelVariant(
        name=f"{operation}[{','.join(marks)}]",
        kernel=kernel,
        types=types,
        constants={**constants, "stride_row" if transposed else "stride_column": 1},
        num_warps=tiling.num_warps,
        aligned=frozenset({"rows", "columns", "block_columns", "stride_lead"})
        | {"stride_column" if transposed else "stride_row"},
        fp_fusion=False,
    )


def _scales_variant(blocks: int, parts: int, scale_format: str, for_tensor: bool) -> KernelVariant:
    rule = scale_rule("e2m1", scale_format, scale_dtype(scale_format))
    tile_p = min(next_power_of_2(parts), _REDUCED_AT_ONCE)
    return KernelVariant(
        name=f"quantize[{scale_format},{blocks}x{parts},scales]",
        kernel=_scales_kernel,
        types={"partials": "*i32", "shared": "*fp32", "scales": "*i32" if for_tensor else "*u8"},
        constants={
            "FOR_TENSOR": for_tensor,
            "RULE": tuple(rule),
            "TILE_B": min(next_power_of_2(blocks), _REDUCED_AT_ONCE // tile_p),
            "TILE_P": tile_p,
        },
        fp_fusion=False,
    )
