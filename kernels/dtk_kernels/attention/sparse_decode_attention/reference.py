"""Sparse decode attention in plain torch: the oracle of the other implementations."""

import torch

from dtk_kernels._table_checks import require_ids_in_range, require_lengths_in_range

__all__ = ["sparse_decode_attention"]


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
    num_pool_blocks, num_kv_heads, block_size, head_dim = keys.shape
    batch, num_query_heads, _ = query.shape
    num_blocks = block_table.shape[2]
    require_ids_in_range("block_table", block_table, num_pool_blocks)
    require_lengths_in_range(block_lengths, block_size, used=block_table >= 0)
    if scale is None:
        scale = head_dim**-0.5

    table = block_table.expand(batch, num_kv_heads, num_blocks)
    lengths = torch.where(table >= 0, block_lengths.expand_as(table), 0)
    listed = torch.arange(block_size, device=keys.device) < lengths[..., None]
    listed = listed.reshape(batch, num_kv_heads, num_blocks * block_size)

    group_size = num_query_heads // num_kv_heads
    grouped = query.float().reshape(batch, num_kv_heads, group_size, head_dim)
    scores = grouped @ _listed_tokens(keys, table, listed).transpose(-1, -2) * scale
    scores = scores.masked_fill(~listed[:, :, None], float("-inf"))
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.masked_fill(lse == float("-inf"), 0.0)[..., None]).exp()
    output = weights @ _listed_tokens(values, table, listed)
    return output.reshape(batch, num_query_heads, head_dim), lse.reshape(batch, num_query_heads)


def _listed_tokens(pool: torch.Tensor, table: torch.Tensor, listed: torch.Tensor) -> torch.Tensor:
    """Return float32 [B, Hkv, N * S, D]: the blocks of every head's list, zeros where no token is listed.

    Zeros rather than whatever the pool holds there: 0 * NaN would poison the sum over tokens.
    """
    _, num_kv_heads, _, head_dim = pool.shape
    if pool.shape[0] == 0:
        return pool.new_zeros((*listed.shape, head_dim), dtype=torch.float32)
    heads = torch.arange(num_kv_heads, device=pool.device)[:, None]
    tokens = pool[table.clamp(min=0).long(), heads].float().reshape(*listed.shape, head_dim)
    return tokens.masked_fill(~listed[..., None], 0.0)
