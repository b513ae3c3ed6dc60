"""Attention over quantised K/V by the compiled module, on the calling thread."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view

__all__ = ["prepare", "quantized_decode_attention"]

# enum KVFormat of csrc/kernels/kernels.hpp
_FORMAT_CODES = {"int8": 1, "e4m3": 2, "e2m1": 3}


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
    call = prepare(
        query, keys, values, key_scales, value_scales, block_table, block_lengths, format=format, scale=scale
    )
    _native.quantized_decode_attention(*call.arguments)
    return call.result


def prepare(
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
) -> NativeCall[tuple[torch.Tensor, torch.Tensor]]:
    """Return the call that fills (output, lse)."""
    require_cpu(query=query)
    table, lengths = block_table.contiguous(), block_lengths.contiguous()
    batch, num_query_heads, head_dim = query.shape
    output = query.new_empty((batch, num_query_heads, head_dim), dtype=torch.float32)
    lse = query.new_empty((batch, num_query_heads), dtype=torch.float32)
    held = (query, keys, values, key_scales, value_scales, table, lengths, output, lse)
    factor = head_dim**-0.5 if scale is None else scale
    arguments = (*map(view, held[:7]), _FORMAT_CODES[format], factor, view(output), view(lse))
    return NativeCall(arguments, (output, lse), held)
