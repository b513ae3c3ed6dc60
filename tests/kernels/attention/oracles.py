"""Slow, literal, double-precision readings of what the attention operations promise."""

import math

import torch

__all__ = ["dense_attention", "digest", "quest_bounds", "selection"]


def dense_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    block_table: torch.Tensor,
    block_lengths: torch.Tensor,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather the listed tokens of one head at a time and take an ordinary softmax over them."""
    batch, num_query_heads, head_dim = query.shape
    group_size = num_query_heads // keys.shape[1]
    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    output = torch.zeros(query.shape, dtype=torch.float64)
    lse = torch.full((batch, num_query_heads), -math.inf, dtype=torch.float64)
    for sequence in range(batch):
        for head in range(num_query_heads):
            kv_head = head // group_size
            group = 0 if block_table.shape[1] == 1 else kv_head
            lengths = block_lengths[sequence, group].tolist()
            blocks = zip(block_table[sequence, group].tolist(), lengths, strict=True)
            listed = [
                (block, kv_head, slice(length)) for block, length in blocks if block >= 0 and length > 0
            ]
            if not listed:
                continue
            k = torch.cat([keys[tokens] for tokens in listed]).double()
            v = torch.cat([values[tokens] for tokens in listed]).double()
            scores = k @ query[sequence, head].double() * factor
            output[sequence, head] = scores.softmax(dim=0) @ v
            lse[sequence, head] = scores.logsumexp(dim=0)
    return output, lse


def digest(keys: torch.Tensor, block_lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Channel-wise min and max, a block at a time."""
    shape = (keys.shape[0], keys.shape[1], keys.shape[3])
    key_min = torch.full(shape, math.inf, dtype=keys.dtype)
    key_max = torch.full(shape, -math.inf, dtype=keys.dtype)
    for block, length in enumerate(block_lengths.tolist()):
        for slot in range(length):
            key_min[block] = torch.minimum(key_min[block], keys[block, :, slot])
            key_max[block] = torch.maximum(key_max[block], keys[block, :, slot])
    return key_min, key_max


def quest_bounds(
    query: torch.Tensor, key_min: torch.Tensor, key_max: torch.Tensor, block_table: torch.Tensor
) -> torch.Tensor:
    """float64 [B, Hq, N]: the bound of every query head, -inf for no block and for an empty one."""
    group_size = query.shape[1] // key_min.shape[1]
    bounds = torch.full(
        (query.shape[0], query.shape[1], block_table.shape[1]), -math.inf, dtype=torch.float64
    )
    for sequence in range(query.shape[0]):
        for column, block in enumerate(block_table[sequence].tolist()):
            for head in range(query.shape[1]):
                low, high = key_min[block, head // group_size], key_max[block, head // group_size]
                if block < 0 or bool((low > high).all()):
                    continue
                q = query[sequence, head].double()
                bounds[sequence, head, column] = torch.maximum(q * low.double(), q * high.double()).sum()
    return bounds


def selection(scores: list[float], forced: list[bool], num_selected: int) -> list[int]:
    """The chosen columns of one row by sorting it."""
    columns = range(len(scores))
    eligible = [c for c in columns if not forced[c] and not math.isnan(scores[c]) and scores[c] != -math.inf]
    ranked = [c for c in columns if forced[c]] + sorted(eligible, key=lambda c: (-scores[c], c))
    chosen = sorted(ranked[:num_selected])
    return chosen + [-1] * (num_selected - len(chosen))
