"""Attention over quantised K/V in plain torch: dequantise both pools, then attend."""

import torch

from dtk_kernels.attention.sparse_decode_attention import reference as plain
from dtk_kernels.quant import unpack
from dtk_kernels.quant.dequantize.reference import dequantize

__all__ = ["quantized_decode_attention"]


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
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (output, lse) of a softmax over the listed tokens, all arithmetic in float32."""
    head_dim = query.shape[2]
    dense_keys = _dequantized(keys, key_scales, format, head_dim)
    dense_values = _dequantized(values, value_scales, format, head_dim)
    return plain.sparse_decode_attention(
        query, dense_keys, dense_values, block_table, block_lengths, scale=scale
    )


def _dequantized(pool: torch.Tensor, scales: torch.Tensor, format: str, head_dim: int) -> torch.Tensor:
    codes = unpack(pool, head_dim, implementation="reference") if format == "e2m1" else pool
    block = (1, head_dim // scales.shape[-1])
    return dequantize(codes, scales, format, block=block, tensor_scale=None)
