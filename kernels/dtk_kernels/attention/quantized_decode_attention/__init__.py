"""Sparse decode attention over K/V stored as low-precision codes with block scales.

The same as `sparse_decode_attention`, but for how K/V are stored: codes are unpacked on the way through the
kernel and never written out, so that a smaller format means less memory to read. Everything else is computed
in float32, as there. Formats: INT8, E4M3 and packed E2M1; scales along the channels of a token.
"""

import torch

from dtk_kernels._checks import (
    FLOAT_DTYPES,
    require_contiguous_last_dim,
    require_dtype,
    require_finite,
    require_grouped_heads,
    require_one_of,
    require_same_device,
    require_same_dtype,
    require_shapes,
)
from dtk_kernels._operation import Operation

__all__ = ["CODE_DTYPES", "quantized_decode_attention"]

CODE_DTYPES = {"int8": torch.int8, "e4m3": torch.uint8, "e2m1": torch.uint8}
"""The formats that K/V may have, and the dtype of their codes."""

_SCALE_DTYPES = (torch.float32, torch.bfloat16, torch.float8_e8m0fnu)


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
    implementation: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to the first `block_lengths` tokens of every listed block; nothing else in the pool is read.

    Args:
        query: `[batch, num_query_heads, head_dim]`, float32, float16 or bfloat16.
        keys: Pool of codes `[num_pool_blocks, num_kv_heads, block_size, head_dim]`, int8 for "int8", uint8
            for "e4m3"; for "e2m1" uint8 `[..., head_dim / 2]` as `dtk_kernels.quant.pack` packs them. Any
            strides as long as the last dim is contiguous.
        values: Like `keys`, same shape and dtype.
        key_scales: `[num_pool_blocks, num_kv_heads, block_size, num_scales]`, float32, bfloat16 or
            float8_e8m0fnu: what `dtk_kernels.quant.quantize` returns for blocks of
            (1, head_dim / num_scales). One scale a token (and head) is the cheapest.
        value_scales: Like `key_scales`, same shape and dtype.
        block_table: int32 `[batch, num_groups, num_blocks]`, as for `sparse_decode_attention`.
        block_lengths: int32, shape of `block_table`, as for `sparse_decode_attention`.
        format: "int8", "e4m3" or "e2m1".
        scale: Factor of the scores before the softmax; None means 1 / sqrt(head_dim).
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        `(output, lse)` as `sparse_decode_attention` returns them.

    Raises:
        TypeError: scale is no number.
        ValueError: The format is unknown, a shape, dtype, device or stride does not fit, scale is not finite,
            or a table holds something wrong.
        NotImplementedError: The named implementation is missing here.
    """
    result: tuple[torch.Tensor, torch.Tensor] = OPERATION(
        implementation,
        query,
        keys,
        values,
        key_scales,
        value_scales,
        block_table,
        block_lengths,
        format=format,
        scale=scale,
    )
    return result


def check(
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
) -> None:
    """Raise ValueError where the arguments' metadata do not fit."""
    require_one_of(CODE_DTYPES, format=format)
    sizes = require_shapes(
        query=(query, ("B", "Hq", "D")),
        keys=(keys, ("P", "Hkv", "S", "C")),
        values=(values, ("P", "Hkv", "S", "C")),
        key_scales=(key_scales, ("P", "Hkv", "S", "E")),
        value_scales=(value_scales, ("P", "Hkv", "S", "E")),
        block_table=(block_table, ("B", "G", "N")),
        block_lengths=(block_lengths, ("B", "G", "N")),
    )
    _check_channels(sizes["D"], sizes["C"], sizes["E"], format)
    require_grouped_heads(sizes["Hq"], sizes["Hkv"])
    if sizes["G"] not in (1, sizes["Hkv"]):
        raise ValueError(
            f"block_table has {sizes['G']} groups; one for all heads or one for each of the {sizes['Hkv']} KV"
            " heads is allowed"
        )
    require_dtype(FLOAT_DTYPES, query=query)
    require_dtype((CODE_DTYPES[format],), keys=keys, values=values)
    require_dtype(_SCALE_DTYPES, key_scales=key_scales)
    require_same_dtype(key_scales=key_scales, value_scales=value_scales)
    require_dtype((torch.int32,), block_table=block_table, block_lengths=block_lengths)
    pools = {"keys": keys, "values": values, "key_scales": key_scales, "value_scales": value_scales}
    tensors = {"query": query, **pools}
    require_same_device(**tensors, block_table=block_table, block_lengths=block_lengths)
    require_contiguous_last_dim(**tensors)
    require_finite(scale=scale)


def _check_channels(head_dim: int, codes: int, num_scales: int, format: str) -> None:
    expected = -(-head_dim // 2) if format == "e2m1" else head_dim
    if codes != expected:
        raise ValueError(
            f"keys must hold {expected} bytes a token for {head_dim} channels of format {format!r},"
            f" got {codes}"
        )
    if num_scales < 1 or head_dim % num_scales:
        raise ValueError(
            f"key_scales must have a number of scales a token that divides head_dim ({head_dim}), got"
            f" {num_scales}"
        )


def _fake(query: torch.Tensor, *_: object, **__: object) -> tuple[torch.Tensor, torch.Tensor]:
    output = query.new_empty(query.shape, dtype=torch.float32)
    return output, query.new_empty(query.shape[:2], dtype=torch.float32)


OPERATION = Operation(
    "quantized_decode_attention",
    schema=(
        "(Tensor query, Tensor keys, Tensor values, Tensor key_scales, Tensor value_scales,"
        " Tensor block_table, Tensor block_lengths, *, str format, float? scale=None) -> (Tensor, Tensor)"
    ),
    check=check,
    fake=_fake,
)
