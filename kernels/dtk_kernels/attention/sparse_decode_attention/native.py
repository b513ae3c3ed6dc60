"""Sparse decode attention by the compiled module, on the calling thread."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view

__all__ = ["prepare", "sparse_decode_attention"]


def sparse_decode_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (output, lse) of a softmax over the listed tokens, all arithmetic in float32."""
    call = prepare(query, keys, values, block_table, block_lengths, scale=scale)
    _native.sparse_decode_attention(*call.arguments)
    return call.result


def prepare(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    *,
    scale: float | None = None,
) -> NativeCall[tuple[torch.Tensor, torch.Tensor]]:
    """Return the call that fills (output, lse)."""
    require_cpu(query=query)
    table, lengths = block_table.contiguous(), block_lengths.contiguous()
    batch, num_query_heads, head_dim = query.shape
    # `new_empty` because it looks for no default device, which takes longer than the allocation.
    output = query.new_empty((batch, num_query_heads, head_dim), dtype=torch.float32)
    lse = query.new_empty((batch, num_query_heads), dtype=torch.float32)
    factor = head_dim**-0.5 if scale is None else scale
    arguments = (
        view(query), view(keys), view(values), view(table), view(lengths), factor, view(output), view(lse)
    )  # fmt: skip
    return NativeCall(arguments, (output, lse), (query, keys, values, table, lengths, output, lse))
