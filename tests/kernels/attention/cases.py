"""Random attention problems whose pools hold poison wherever nothing should be read."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

__all__ = ["DTYPES", "AttentionCase", "attention_cases", "head_dims", "strided_pool"]

DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
FLOAT32_EPSILON = torch.finfo(torch.float32).eps
POISON = st.sampled_from([float("nan"), float("inf"), float("-inf"), 6e4])


def head_dims() -> st.SearchStrategy[int]:
    """Usual head sizes and odd ones."""
    return st.sampled_from([16, 32, 64, 80, 128, 256]) | st.integers(1, 256)


@dataclass(frozen=True)
class AttentionCase:
    """Arguments of `sparse_decode_attention`."""

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    block_table: torch.Tensor
    block_lengths: torch.Tensor
    scale: float | None

    def arguments(self) -> tuple[torch.Tensor, ...]:
        """The positional arguments."""
        return (self.query, self.keys, self.values, self.block_table, self.block_lengths)

    def tolerance(self) -> dict[str, float]:
        """How far float32 may be off: a score's rounding error is a relative error of its weight."""
        listed = listed_tokens(self.block_table, self.block_lengths, tuple(self.keys.shape))
        norms = [
            rows.double().norm(dim=-1).max().item() if len(rows) else 0.0
            for rows in (self.query, self.keys[listed])
        ]
        scale = self.query.shape[2] ** -0.5 if self.scale is None else self.scale
        return {"rtol": 1e-5, "atol": 1e-5 + 2 * FLOAT32_EPSILON * norms[0] * norms[1] * scale}


def strided_pool(
    draw: st.DrawFn, shape: tuple[int, int, int, int], dtype: torch.dtype, fill: float
) -> torch.Tensor:
    """A pool filled with `fill`, its first three dims in any order in memory, with slack between rows."""
    order = draw(st.permutations([0, 1, 2]))
    slack = draw(st.integers(0, 3))
    memory = torch.full((*(shape[dim] for dim in order), shape[3] + slack), fill, dtype=dtype)
    inverse = [order.index(dim) for dim in range(3)]
    return memory.permute(*inverse, 3)[..., : shape[3]]


@st.composite
def attention_cases(draw: st.DrawFn) -> AttentionCase:
    """Any sizes, dtypes, strides and tables; also no block at all, single tokens and partial blocks."""
    batch, num_kv_heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    group_size = draw(st.integers(1, 8) | st.just(16))
    head_dim = draw(head_dims())
    block_size = draw(st.sampled_from([1, 3, 16, 32]) | st.integers(1, 70))
    num_pool_blocks, num_blocks = draw(st.integers(1, 5)), draw(st.integers(0, 5))
    num_groups = draw(st.sampled_from([1, num_kv_heads]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    table_shape = (batch, num_groups, num_blocks)
    table = torch.randint(-1, num_pool_blocks, table_shape, generator=generator, dtype=torch.int32)
    lengths = torch.randint(0, block_size + 1, table_shape, generator=generator, dtype=torch.int32)
    if draw(st.booleans()):
        lengths = torch.full(table_shape, block_size, dtype=torch.int32)
    shape = (num_pool_blocks, num_kv_heads, block_size, head_dim)
    dtype, poison = draw(DTYPES), draw(POISON)
    keys = strided_pool(draw, shape, dtype, poison)
    values = strided_pool(draw, shape, dtype, poison)
    listed = listed_tokens(table, lengths, shape)
    for pool in (keys, values):
        fresh = torch.randn(shape, generator=generator).to(dtype)
        pool.copy_(torch.where(listed[..., None], fresh, pool))
    # Large queries make the softmax sharp, so that a late token can outweigh all before it.
    spread = draw(st.sampled_from([0.1, 1.0, 20.0]))
    rows = torch.randn((batch, num_kv_heads * group_size, head_dim + 1), generator=generator) * spread
    query = rows.to(draw(DTYPES))[..., :head_dim]
    lengths = lengths.masked_fill(table < 0, draw(st.sampled_from([0, -7, 10**6])))  # not looked at
    return AttentionCase(query, keys, values, table, lengths, draw(st.sampled_from([None, 1.0, 0.05])))


def listed_tokens(table: torch.Tensor, lengths: torch.Tensor, pool_shape: tuple[int, ...]) -> torch.Tensor:
    """bool [P, Hkv, S]: the tokens that any sequence lists."""
    listed = torch.zeros(pool_shape[:3], dtype=torch.bool)
    for sequence, group, column in torch.cartesian_prod(*map(torch.arange, table.shape)).tolist():
        block, length = int(table[sequence, group, column]), int(lengths[sequence, group, column])
        heads = slice(None) if table.shape[1] == 1 else slice(group, group + 1)
        if block >= 0:
            listed[block, heads, :length] = True
    return listed
