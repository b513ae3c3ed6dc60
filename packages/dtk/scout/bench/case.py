"""What the contenders attend to: K/V in a block pool, scattered selections, the right answer in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dtk.scout.bench.config import KernelBenchConfig

__all__ = ["TORCH_DTYPES", "Case", "KeyValues", "gather", "make_case", "make_key_values", "oracle"]

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
    """Fill a pool with random K/V and select random blocks of it for each sequence."""
    num_blocks = config.batch * config.context_blocks
    shape = (num_blocks, config.kv_heads, config.block_size, config.head_dim)
    keys, values = (torch.randn(shape, generator=generator).to(TORCH_DTYPES[dtype]) for _ in range(2))
    # Blocks of all sequences lie in one random order, as in a pool that has been in use for a while.
    owned = torch.randperm(num_blocks, generator=generator).view(config.batch, config.context_blocks)
    table = owned[:, None, : config.selected_blocks].to(torch.int32).contiguous()
    lengths = torch.full_like(table, config.block_size)
    lengths[..., -1] = config.selected_tokens - (config.selected_blocks - 1) * config.block_size
    gathered = (gather(pool, table, config.selected_tokens) for pool in (keys, values))
    return KeyValues(keys, values, table, lengths, *gathered)


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


def oracle(case: Case) -> Tensor:
    """Return the attention output in float64, [batch, query heads, head size], sequence by sequence."""
    rows = []
    for query, keys, values in zip(case.query, case.kv.gathered_keys, case.kv.gathered_values, strict=True):
        heads, _, head_dim = keys.shape
        grouped = query.double().view(heads, case.group_size, head_dim)
        scores = grouped @ keys.double().transpose(1, 2) * head_dim**-0.5
        rows.append((scores.softmax(dim=-1) @ values.double()).view(-1, head_dim))
    return torch.stack(rows)
