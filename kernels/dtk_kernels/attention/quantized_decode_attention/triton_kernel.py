# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Attention over quantised K/V in Triton: sparse decode attention that decodes codes in registers.

Programs, splits and the online softmax are those of `sparse_decode_attention`; K and V come in as codes. All
codes become fp16, which holds every value of every format, by integer operations alone: the bits of an E4M3
or E2M1 code, moved to their place in an fp16, are its value times a power of two. The two codes in a byte of
E2M1 are an even and an odd channel. They are multiplied with the even and the odd channels of the query and
are summed into totals of their own, so that nothing is moved between threads.

Precision: products are taken in fp16 and accumulated in fp32, for each scale of a token on its own. Key
scales multiply the parts of the scores, value scales the softmax weights. What stands on the other side
(query and weights) is first scaled by a power of two a row, then split into two fp16 terms, which leave
2**-22 of it (one term for a query of 16 bits, exact but for what is below 2**-29 of its row's largest). Where
scales have too few channels for that (see the launch plan), K and V are dequantised to fp32, and the products
are three of TF32 terms each, which leave about 2**-21.

Ids beyond the pool count as absent: a check that raises would stall the GPU.
"""

import math

import torch
import triton.language as tl

from dtk_kernels.attention.merge_partials.triton_kernel import merge_partials
from dtk_kernels.attention.quantized_decode_attention.launch_plan import code_bytes, tiles_for
from dtk_kernels.attention.sparse_decode_attention.launch_plan import (
    Pipeline,
    Tiles,
    columns_for_each_split,
)
from dtk_kernels.attention.triton_decode import (
    STRIDES_OF_TABLES,
    empty_result,
    last_dim_dense,
    listed_tokens,
    softmax_step,
    store_lse,
    table_strides,
    tile_constants,
    weighted_values,
)
from dtk_kernels.gemm.triton_operands import as_stored, load_scales, scale_kind, scale_type
from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, stride_unit, triton_type

__all__ = ["aot_variants", "quantized_decode_attention"]

_LN_2 = math.log(2.0)
_POOLS = ("key", "value", "key_scale", "value_scale")
_STRIDES = (
    *(f"stride_{pool}_{axis}" for pool in _POOLS for axis in ("block", "head", "token")),
    *STRIDES_OF_TABLES,
)
_SIZES = ("num_columns", "num_pool_blocks", "columns_per_split", "num_query_heads", "group_size")
_UNITS = {"int8": 1.0, "e4m3": 2.0**8, "e2m1": 2.0**14}  # what `_as_fp16` divides values by


@jit
def _no_tensors() -> tl.tuple:
    """An empty tuple, to which checkers of types let tensors be added."""
    return ()


@jit
def _as_fp16(codes: tl.tensor, ODD: tl.constexpr, FORMAT: tl.constexpr) -> tl.tensor:
    """Values of codes, or of the odd ones of E2M1, divided by the format's unit."""
    if FORMAT == "int8":
        # 1152 is 1024, where an fp16 counts in ones, plus the 128 that make codes positive.
        half = (codes.to(tl.uint8, bitcast=True) ^ 0x80).to(tl.uint16) | 0x6400
        return half.to(tl.float16, bitcast=True) - 1152.0
    elif FORMAT == "e4m3":  # noqa: RET505 - Triton visits what follows a return, too
        bits = codes.to(tl.uint16)
        half = ((bits & 0x7F) << 7) | ((bits & 0x80) << 8)
        return tl.where((bits & 0x7F) == 0x7F, half | 0x7E00, half).to(tl.float16, bitcast=True)
    else:
        bits = codes.to(tl.uint16)
        if ODD:
            bits = bits >> 4
        half = ((bits & 7) << 9) | ((bits & 8) << 12)
        return half.to(tl.float16, bitcast=True)


@jit
def _exponents(x: tl.tensor) -> tl.tensor:
    """Biased exponent of the largest magnitude in each row of fp32 numbers, at least 30."""
    return tl.maximum(tl.max(tl.abs(x), axis=1).to(tl.int32, bitcast=True) >> 23, 30)


@jit
def _fp16_terms(x: tl.tensor, exponents: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Split rows that are divided by their `_row_units`, which makes them less than 2**15."""
    scaled = x * ((268 - exponents) << 23).to(tl.float32, bitcast=True)[:, None]
    high = scaled.to(tl.float16)
    return high, (scaled - high.to(tl.float32)).to(tl.float16)


@jit
def _row_units(exponents: tl.tensor) -> tl.tensor:
    return ((exponents - 14) << 23).to(tl.float32, bitcast=True)


@jit
def _products(terms: tl.tuple, right: tl.tensor, total: tl.tensor, TWO_TERMS: tl.constexpr) -> tl.tensor:
    """`total + left @ right`, the left one in one fp16 term or two."""
    total = tl.dot(terms[0], right, total)
    if TWO_TERMS:
        total = tl.dot(terms[1], right, total)
    return total


@jit
def _dequantised(
    codes: tl.tensor,
    scale_at: tl.tensor,
    live: tl.tensor,
    channel: tl.tensor,
    ODD: tl.constexpr,
    FORMAT: tl.constexpr,
    UNIT: tl.constexpr,
    SCALE_CHANNELS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SCALE: tl.constexpr,
) -> tl.tensor:
    """Values of codes as fp32, with the scale of each token and channel."""
    inside = live[:, None] & (channel < HEAD_DIM)[None, :]
    scales = load_scales(scale_at[:, None] + (channel // SCALE_CHANNELS)[None, :], inside, SCALE)
    return _as_fp16(codes, ODD, FORMAT).to(tl.float32) * UNIT * scales


@jit(unspecialized=(*_STRIDES, *_SIZES))
def _quantized_decode_attention_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    key_scales: tl.tensor,
    value_scales: tl.tensor,
    block_table: tl.tensor,
    block_lengths: tl.tensor,
    outputs: tl.tensor,
    lses: tl.tensor,
    scale_log2: tl.tensor,
    num_columns: tl.tensor,
    num_pool_blocks: tl.tensor,
    columns_per_split: tl.tensor,
    num_query_heads: tl.tensor,
    group_size: tl.tensor,
    stride_query_batch: tl.tensor,
    stride_query_head: tl.tensor,
    stride_key_block: tl.tensor,
    stride_key_head: tl.tensor,
    stride_key_token: tl.tensor,
    stride_value_block: tl.tensor,
    stride_value_head: tl.tensor,
    stride_value_token: tl.tensor,
    stride_key_scale_block: tl.tensor,
    stride_key_scale_head: tl.tensor,
    stride_key_scale_token: tl.tensor,
    stride_value_scale_block: tl.tensor,
    stride_value_scale_head: tl.tensor,
    stride_value_scale_token: tl.tensor,
    stride_table_batch: tl.tensor,
    stride_table_head: tl.tensor,
    stride_lengths_batch: tl.tensor,
    stride_lengths_head: tl.tensor,
    FORMAT: tl.constexpr,
    UNIT: tl.constexpr,
    CODES_A_BYTE: tl.constexpr,
    PARTS: tl.constexpr,
    PART_BYTES: tl.constexpr,
    IN_FP32: tl.constexpr,
    SCALE: tl.constexpr,
    SCALE_CHANNELS: tl.constexpr,
    TWO_TERMS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    STRIDE_UNIT: tl.constexpr,
    SAME_STRIDES: tl.constexpr,
    HEAD_CHUNKS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILES_PER_BLOCK: tl.constexpr,
    SCALAR_LOOKUP: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_T: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    packed: tl.constexpr = CODES_A_BYTE == 2
    split = tl.program_id(0)
    kv_head = (tl.program_id(1) // HEAD_CHUNKS).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    member = (tl.program_id(1) % HEAD_CHUNKS) * TILE_M + tl.arange(0, TILE_M)
    byte = tl.arange(0, TILE_D)
    in_part = byte < PART_BYTES
    even, odd = byte * CODES_A_BYTE, byte * CODES_A_BYTE + 1
    mask_even = (member < group_size)[:, None] & (in_part & (even < HEAD_DIM))[None, :]
    mask_odd = (member < group_size)[:, None] & (in_part & (odd < HEAD_DIM))[None, :]
    query_head = kv_head * group_size + member
    query_at = query + (batch * stride_query_batch + query_head * stride_query_head)[:, None]
    q, q_odd = _no_tensors(), _no_tensors()
    exponents = tl.zeros([TILE_M], tl.int32)
    for part in tl.static_range(PARTS):
        part_at = query_at + part * PART_BYTES * CODES_A_BYTE
        q += (tl.load(part_at + even[None, :], mask=mask_even, other=0.0).to(tl.float32),)
        exponents = tl.maximum(exponents, _exponents(q[part]))
        if packed:
            q_odd += (tl.load(part_at + odd[None, :], mask=mask_odd, other=0.0).to(tl.float32),)
            exponents = tl.maximum(exponents, _exponents(q_odd[part]))
    factor = _row_units(exponents) * (scale_log2 * UNIT)
    zeros = tl.zeros([TILE_M, TILE_D], tl.float32)
    terms, terms_odd, total, total_odd = _no_tensors(), _no_tensors(), _no_tensors(), _no_tensors()
    for part in tl.static_range(PARTS):
        total += (zeros,)
        terms += (_fp16_terms(q[part], exponents),)
        if packed:
            total_odd += (zeros,)
            terms_odd += (_fp16_terms(q_odd[part], exponents),)

    first = split * columns_per_split
    columns_here = tl.minimum(columns_per_split, num_columns - first)
    table = block_table + batch * stride_table_batch + kv_head * stride_table_head + first
    lengths = block_lengths + batch * stride_lengths_batch + kv_head * stride_lengths_head + first
    maximum = tl.full([TILE_M], float("-inf"), tl.float32)
    weight_sum = tl.zeros([TILE_M], tl.float32)
    for tile in range(tl.cdiv(columns_here, COLUMNS) * TILES_PER_BLOCK):
        block, slot, live = listed_tokens(
            table, lengths, tile, columns_here, num_pool_blocks, BLOCK_SIZE, COLUMNS, TILES_PER_BLOCK,
            SCALAR_LOOKUP, TILE_T,
        )  # fmt: skip
        mask = live[:, None] & in_part[None, :]
        at = block * stride_key_block + kv_head * stride_key_head + slot * stride_key_token
        at = (at * STRIDE_UNIT)[:, None] + byte[None, :]
        scale_at = block * stride_key_scale_block + kv_head * stride_key_scale_head
        scale_at += slot * stride_key_scale_token
        score = tl.zeros([TILE_M, TILE_T], tl.float32)
        for part in tl.static_range(PARTS):
            codes = tl.load(keys + at + part * PART_BYTES, mask=mask, other=0)
            if IN_FP32:
                k = _dequantised(
                    codes, key_scales + scale_at, live, even, False, FORMAT, UNIT, SCALE_CHANNELS, HEAD_DIM,
                    SCALE,
                )  # fmt: skip
                score = tl.dot(q[part], tl.trans(k), score, input_precision="tf32x3")
                if packed:
                    k = _dequantised(
                        codes, key_scales + scale_at, live, odd, True, FORMAT, UNIT, SCALE_CHANNELS, HEAD_DIM,
                        SCALE,
                    )  # fmt: skip
                    score = tl.dot(q_odd[part], tl.trans(k), score, input_precision="tf32x3")
            else:
                k = tl.trans(_as_fp16(codes, False, FORMAT))
                product = _products(terms[part], k, tl.zeros([TILE_M, TILE_T], tl.float32), TWO_TERMS)
                if packed:
                    k = tl.trans(_as_fp16(codes, True, FORMAT))
                    product = _products(terms_odd[part], k, product, TWO_TERMS)
                score += product * load_scales(key_scales + scale_at + part, live, SCALE)[None, :]
        score *= scale_log2 if IN_FP32 else factor[:, None]
        score = tl.where(live[None, :], score, float("-inf"))
        weights, keep, maximum, weight_sum = softmax_step(score, maximum, weight_sum)

        if not SAME_STRIDES:
            at = block * stride_value_block + kv_head * stride_value_head + slot * stride_value_token
            at = (at * STRIDE_UNIT)[:, None] + byte[None, :]
            scale_at = block * stride_value_scale_block + kv_head * stride_value_scale_head
            scale_at += slot * stride_value_scale_token
        scales = _no_tensors()
        if not IN_FP32:
            largest = tl.zeros([TILE_T], tl.float32)
            for part in tl.static_range(PARTS):
                scales += (load_scales(value_scales + scale_at + part, live, SCALE),)
                size = tl.abs(scales[part])
                # A scale that is not finite must not make the others vanish.
                largest = tl.where(size < float("inf"), tl.maximum(largest, size), largest)
            weight_exponents = _exponents(weights * largest[None, :])
            unit = (_row_units(weight_exponents) * UNIT)[:, None]
        new_total, new_odd = _no_tensors(), _no_tensors()
        for part in tl.static_range(PARTS):
            codes = tl.load(values + at + part * PART_BYTES, mask=mask, other=0)
            so_far = total[part] * keep[:, None]
            if IN_FP32:
                v = _dequantised(
                    codes, value_scales + scale_at, live, even, False, FORMAT, UNIT, SCALE_CHANNELS, HEAD_DIM,
                    SCALE,
                )  # fmt: skip
                new_total += (weighted_values(weights, v, so_far, True),)
                if packed:
                    v = _dequantised(
                        codes, value_scales + scale_at, live, odd, True, FORMAT, UNIT, SCALE_CHANNELS,
                        HEAD_DIM, SCALE,
                    )  # fmt: skip
                    so_far = total_odd[part] * keep[:, None]
                    new_odd += (weighted_values(weights, v, so_far, True),)
            else:
                scaled = _fp16_terms(weights * scales[part][None, :], weight_exponents)
                product = _products(scaled, _as_fp16(codes, False, FORMAT), zeros, True)
                new_total += (so_far + product * unit,)
                if packed:
                    product = _products(scaled, _as_fp16(codes, True, FORMAT), zeros, True)
                    new_odd += (total_odd[part] * keep[:, None] + product * unit,)
        total, total_odd = new_total, new_odd

    row = (split.to(tl.int64) * tl.num_programs(2) + batch) * num_query_heads + query_head
    divisor = store_lse(lses, row, member < group_size, maximum, weight_sum)[:, None]
    for part in tl.static_range(PARTS):
        output_at = outputs + row[:, None] * HEAD_DIM + part * PART_BYTES * CODES_A_BYTE
        tl.store(output_at + even[None, :], total[part] / divisor, mask=mask_even)
        if packed:
            tl.store(output_at + odd[None, :], total_odd[part] / divisor, mask=mask_odd)


def quantized_decode_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    key_scales: torch.Tensor,
    value_scales: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    format: str,
    scale: float | None = None,
    columns_per_split: int | None = None,
    pipeline: Pipeline | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one query token a sequence over the listed blocks of codes.

    Args:
        query: `[B, Hq, D]`, fp32, fp16 or bf16.
        keys: `[P, Hkv, S, bytes]` pool of codes, any strides with the bytes of a token contiguous.
        values: `[P, Hkv, S, bytes]` likewise.
        key_scales: `[P, Hkv, S, E]` fp32, bf16 or e8m0; E divides D.
        value_scales: `[P, Hkv, S, E]` of the key scales' dtype.
        block_table: `[B, G, N]` int32 rows of the pools, -1 absent; G is 1 or Hkv.
        block_lengths: `[B, G, N]` int32 valid tokens of each listed block.
        format: "int8", "e4m3" or "e2m1".
        scale: factor on q.k; 1/sqrt(D) by default.
        columns_per_split: table columns a program walks; by default enough programs to fill the GPU.
        pipeline: how a program walks them; by default what the launch plan says.

    Returns:
        `(output [B, Hq, D] fp32, natural-log lse [B, Hq] fp32)`; (0, -inf) for an empty selection.
    """
    batch, num_query_heads, head_dim = query.shape
    num_pool_blocks, num_kv_heads, block_size = keys.shape[:3]
    num_columns = block_table.shape[2]
    if num_columns == 0 or block_size == 0:
        return empty_result(query)
    group_size = num_query_heads // num_kv_heads
    query, block_table, block_lengths = map(last_dim_dense, (query, block_table, block_lengths))
    tiles = tiles_for(
        format,
        num_scales=key_scales.shape[3],
        head_dim=head_dim,
        block_size=block_size,
        group_size=group_size,
        pipeline=pipeline,
    )
    if columns_per_split is None:
        programs = batch * num_kv_heads * tiles.head_chunks
        columns_per_split = columns_for_each_split(num_columns, tiles, programs, query.device)
    splits = ceil_div(num_columns, columns_per_split)
    outputs = torch.empty(splits, batch, num_query_heads, head_dim, dtype=torch.float32, device=query.device)
    lses = torch.empty(splits, batch, num_query_heads, dtype=torch.float32, device=query.device)
    unit = stride_unit(1, *keys.stride()[:3], *values.stride()[:3])
    alike = keys.stride() == values.stride() and key_scales.stride() == value_scales.stride()
    launch(
        _quantized_decode_attention_kernel,
        (splits, num_kv_heads * tiles.head_chunks, batch),
        *(query, keys, values, as_stored(key_scales), as_stored(value_scales)),
        *(block_table, block_lengths, outputs, lses),
        (head_dim**-0.5 if scale is None else scale) / _LN_2,
        *(num_columns, num_pool_blocks, columns_per_split, num_query_heads, group_size),
        *query.stride()[:2],
        *(stride // unit for pool in (keys, values) for stride in pool.stride()[:3]),
        *(stride for scales in (key_scales, value_scales) for stride in scales.stride()[:3]),
        *table_strides(block_table),
        *table_strides(block_lengths),
        device=query.device,
        **_constants(
            tiles, format, query.dtype, key_scales.dtype, num_scales=key_scales.shape[3], head_dim=head_dim,
            block_size=block_size, unit=unit, same_strides=alike,
        ),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )  # fmt: skip
    return (outputs[0], lses[0]) if splits == 1 else merge_partials(outputs, lses)


def _constants(
    tiles: Tiles,
    format: str,
    query: torch.dtype,
    scale: torch.dtype,
    *,
    num_scales: int,
    head_dim: int,
    block_size: int,
    unit: int,
    same_strides: bool,
) -> dict[str, object]:
    parts = 1 if tiles.in_fp32 else num_scales
    return {
        "FORMAT": format,
        "UNIT": _UNITS[format],
        "CODES_A_BYTE": 2 if format == "e2m1" else 1,
        "PARTS": parts,
        "PART_BYTES": code_bytes(format, head_dim) // parts,
        "IN_FP32": tiles.in_fp32,
        "SCALE": scale_kind(scale),
        "SCALE_CHANNELS": head_dim // num_scales,
        "TWO_TERMS": query == torch.float32,
        "HEAD_DIM": head_dim,
        "BLOCK_SIZE": block_size,
        "STRIDE_UNIT": unit,
        "SAME_STRIDES": same_strides,
        **tile_constants(tiles),
    }


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: every format, query and scale dtype, one scale and several."""
    fp32, fp16, bf16, e8m0 = torch.float32, torch.float16, torch.bfloat16, torch.float8_e8m0fnu
    return [
        _variant(*each)
        for each in (
            ("int8", fp32, fp32, 1, 128, 32, 4),
            ("int8", bf16, fp32, 1, 128, 32, 4),
            ("e4m3", bf16, fp32, 1, 128, 32, 8),
            ("e2m1", bf16, fp32, 1, 128, 32, 4),
            ("e2m1", fp32, bf16, 1, 128, 32, 1),
            ("e2m1", fp16, e8m0, 4, 128, 32, 4),
            ("int8", bf16, bf16, 4, 128, 32, 4),
            ("e4m3", fp32, e8m0, 2, 64, 16, 3),
            ("e2m1", bf16, bf16, 8, 256, 64, 16),
            ("e4m3", bf16, e8m0, 8, 256, 64, 1),
            ("e2m1", bf16, fp32, 8, 128, 32, 4),
            ("e4m3", fp16, fp32, 12, 96, 32, 4),
            ("e2m1", fp16, bf16, 1, 80, 24, 32),
            ("int8", fp16, e8m0, 1, 96, 1, 3),
        )
    ]


def _variant(
    format: str,
    query: torch.dtype,
    scale: torch.dtype,
    num_scales: int,
    head_dim: int,
    block_size: int,
    group_size: int,
) -> KernelVariant:
    tiles = tiles_for(
        format, num_scales=num_scales, head_dim=head_dim, block_size=block_size, group_size=group_size
    )
    scale_name = "e8m0" if scale == torch.float8_e8m0fnu else triton_type(scale)
    shape = f"e{num_scales},d{head_dim},s{block_size},g{group_size}"
    code_type = "*i8" if format == "int8" else "*u8"
    return KernelVariant(
        name=f"quantized_decode_attention[{triton_type(query)},{format},{scale_name},{shape}]",
        kernel=_quantized_decode_attention_kernel,
        types={
            "query": f"*{triton_type(query)}",
            **dict.fromkeys(("keys", "values"), code_type),
            **dict.fromkeys(("key_scales", "value_scales"), f"*{scale_type(scale)}"),
            **dict.fromkeys(("block_table", "block_lengths"), "*i32"),
            **dict.fromkeys(("outputs", "lses"), "*fp32"),
            "scale_log2": "fp32",
        },
        constants=_constants(
            tiles, format, query, scale, num_scales=num_scales, head_dim=head_dim, block_size=block_size,
            unit=stride_unit(1, code_bytes(format, head_dim)), same_strides=True,
        ),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        aligned=frozenset({"stride_query_batch", "stride_query_head"}),
    )  # fmt: skip
