"""The right answers: plain torch in double precision, on the CPU, written without a look at the kernels."""

import torch

from dtk_kernels.attention._types import HeadReduction

__all__ = ["exact_attention", "exact_digest", "exact_merge", "exact_scores"]


def exact_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp of `sparse_decode_attention` with one table for all heads, in float64."""
    batch, num_query_heads, head_dim = query.shape
    heads = keys.shape[1]
    grouped = query.double().reshape(batch, heads, -1, head_dim)
    outputs, lses = (
        torch.zeros_like(grouped),
        torch.full(grouped.shape[:3], float("-inf"), dtype=torch.double),
    )
    slots = torch.arange(keys.shape[2])
    for row in range(batch):
        live = (slots < lengths[row, 0, :, None]) & (table[row, 0] >= 0)[:, None]
        blocks = table[row, 0].clamp(min=0).long()
        for head in range(heads) if live.any() else ():
            k, v = (pool[blocks, head][live].double() for pool in (keys, values))
            scores = grouped[row, head] @ k.T * head_dim**-0.5
            outputs[row, head], lses[row, head] = scores.softmax(dim=1) @ v, scores.logsumexp(dim=1)
    return outputs.reshape(query.shape), lses.reshape(batch, num_query_heads)


def exact_digest(keys: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum and maximum of each block's first tokens, in the keys' dtype."""
    absent = torch.arange(keys.shape[2]) >= lengths[:, None]
    absent = absent[:, None, :, None]
    infinity = float("inf")
    return keys.masked_fill(absent, infinity).amin(dim=2), keys.masked_fill(absent, -infinity).amax(dim=2)


def exact_scores(
    query: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    table: torch.Tensor,
    head_reduction: HeadReduction,
) -> torch.Tensor:
    """Scores of `block_score` in float64."""
    listed = table.clamp(min=0).long()
    grouped = query.double().reshape(len(query), 1, low.shape[1], -1, query.shape[2])
    products = (grouped * digest[listed].double()[:, :, :, None] for digest in (low, high))
    bounds = torch.maximum(*products).sum(dim=-1)  # [B, N, Hkv, group]
    if head_reduction == "layer":
        scores = bounds.sum(dim=(2, 3))[:, None]
    elif head_reduction == "group_sum":
        scores = bounds.sum(dim=3).transpose(1, 2)
    else:
        scores = bounds.amax(dim=3).transpose(1, 2)
    return scores.masked_fill((table < 0)[:, None], float("-inf"))


def exact_merge(outputs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp of `merge_partials` in float64."""
    lse = lses.double().logsumexp(dim=0)
    weights = (lses.double() - lse.masked_fill(lse == float("-inf"), 0.0)).exp()
    outputs = outputs.double().masked_fill((lses == float("-inf"))[..., None], 0.0)
    return (weights[..., None] * outputs).sum(dim=0), lse
