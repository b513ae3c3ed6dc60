"""What the contenders attend to: K/V in a block pool, scattered selections, the right answer in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dtk.scout.bench.config import KernelBenchConfig

__all__ = [
    "TORCH_DTYPES",
    "Case",
    "KeyValues",
    "gather",
    "make_case",
    "make_key_values",
    "oracle",
    "scattered_blocks",
]

TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class KeyValues:
    """K/V of a whole context in a block pool, a selection of blocks, and the same selection gathered.

    Attributes:
        keys: Pool [pool blocks, KV heads, block size, head size]; likewise `values`.
        block_table: int32 [batch, 1, selected blocks], ids all over the pool, no block twice.
        block_lengths: int32, same shape; the last block may be partial.
        gathered_keys: [batch, KV heads, selected tokens, head size], contiguous; likewise `gathered_values`.
    """

    keys: Tensor
    values: Tensor
    block_table: Tensor
    block_lengths: Tensor
    gathered_keys: Tensor
    gathered_values: Tensor


@dataclass(frozen=True)
class Case:
    """One comparison: K/V and a query of so many heads a KV head.

    Attributes:
        dtype: `fp32`, `fp16` or `bf16`.
        group_size: Query heads for each KV head.
        query: [batch, KV heads * group size, head size], in the dtype of K/V.
        kv: The K/V.
    """

    dtype: str
    group_size: int
    query: Tensor
    kv: KeyValues


def make_key_values(config: KernelBenchConfig, dtype: str, generator: torch.Generator) -> KeyValues:
    """Scatter random K/V over a pool, each sequence with blocks of its own; the rest of the pool is NaN."""
    table = scattered_blocks(config.batch, config.context_blocks, config.selected_blocks, generator)
    lengths = torch.full_like(table, config.block_size)
    lengths[..., -1] = config.selected_tokens - (config.selected_blocks - 1) * config.block_size
    shape = (config.batch, config.kv_heads, config.selected_tokens, config.head_dim)
    keys, values = (torch.randn(shape, generator=generator).to(TORCH_DTYPES[dtype]) for _ in range(2))
    key_pool, value_pool = (_scatter(tokens, table, config) for tokens in (keys, values))
    return KeyValues(key_pool, value_pool, table, lengths, keys, values)


def scattered_blocks(
    batch: int, context_blocks: int, num_selected: int, generator: torch.Generator
) -> Tensor:
    """Select blocks of each sequence at random: int32 [batch, 1, num_selected] ids, no block twice.

    The blocks of all sequences lie in one random order, as in a pool that has been in use for a while.
    """
    owned = torch.randperm(batch * context_blocks, generator=generator).view(batch, context_blocks)
    return owned[:, None, :num_selected].to(torch.int32).contiguous()


def _scatter(tokens: Tensor, block_table: Tensor, config: KernelBenchConfig) -> Tensor:
    block_shape = (config.kv_heads, config.block_size, config.head_dim)
    pool = tokens.new_full((config.batch * config.context_blocks, *block_shape), torch.nan)
    padded = tokens.new_full(
        (config.batch, config.kv_heads, config.selected_blocks * config.block_size, config.head_dim),
        torch.nan,
    )
    padded[:, :, : config.selected_tokens] = tokens
    blocks = padded.view(config.batch, config.kv_heads, config.selected_blocks, *block_shape[1:])
    pool[block_table.flatten().long()] = blocks.transpose(1, 2).reshape(-1, *block_shape)
    return pool


def gather(pool: Tensor, block_table: Tensor, num_tokens: int) -> Tensor:
    """Return the first `num_tokens` tokens of the listed blocks, [batch, KV heads, tokens, head size]."""
    batch, _, num_blocks = block_table.shape
    _, kv_heads, block_size, head_dim = pool.shape
    blocks = pool.index_select(0, block_table.flatten().long()).view(batch, num_blocks, *pool.shape[1:])
    tokens = blocks.transpose(1, 2).reshape(batch, kv_heads, num_blocks * block_size, head_dim)
    return tokens[:, :, :num_tokens].contiguous()


def make_case(kv: KeyValues, dtype: str, group_size: int, generator: torch.Generator) -> Case:
    """Return the K/V with a random query."""
    batch, kv_heads, _, head_dim = kv.gathered_keys.shape
    query = torch.randn(batch, kv_heads * group_size, head_dim, generator=generator).to(kv.keys.dtype)
    return Case(dtype, group_size, query, kv)


def oracle(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention in float64, one KV head after another.

    Args:
        query: [batch, query heads, head size]; the output has the same shape.
        keys: [batch, KV heads, tokens, head size].
        values: Likewise.
    """
    batch, kv_heads, _, head_dim = keys.shape
    grouped = query.double().view(batch, kv_heads, -1, head_dim)
    output = torch.empty_like(grouped)
    for row in range(batch):
        for head in range(kv_heads):
            scores = grouped[row, head] @ keys[row, head].double().T * head_dim**-0.5
            output[row, head] = scores.softmax(dim=-1) @ values[row, head].double()
    return output.view(query.shape)
