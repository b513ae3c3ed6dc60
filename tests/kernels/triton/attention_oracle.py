"""Random attention problems, and their answers from dense attention in double precision."""

from dataclasses import dataclass

import torch

from tests.kernels.triton import inputs


@dataclass(frozen=True)
class Problem:
    """Arguments of `sparse_decode_attention`, on the CPU."""

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    block_table: torch.Tensor
    block_lengths: torch.Tensor
    scale: float | None

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.query, self.keys, self.values, self.block_table, self.block_lengths


def make_problem(
    *,
    batch: int = 1,
    num_kv_heads: int = 2,
    group_size: int = 3,
    head_dim: int = 24,
    block_size: int = 7,
    num_pool_blocks: int = 6,
    num_blocks: int = 3,
    num_tables: int = 1,
    query_dtype: torch.dtype | None = None,
    dtype: torch.dtype = torch.float32,
    layout: str = "dense",
    scale: float | None = None,
    seed: int = 0,
) -> Problem:
    """Return a random problem; tokens of the pools that no list names are NaN, or infinite in `values`."""
    source = inputs.generator(seed)
    table = inputs.randint(-1, num_pool_blocks - 1, (batch, num_tables, num_blocks), source)
    lengths = inputs.randint(0, block_size, table.shape, source)
    shape = (num_pool_blocks, num_kv_heads, block_size, head_dim)
    keys, values = inputs.randn(shape, source, dtype), inputs.randn(shape, source, dtype)
    listed = torch.zeros(num_pool_blocks, num_kv_heads, block_size, dtype=torch.bool)
    for row_table, row_lengths in zip(table, lengths, strict=True):
        for head in range(num_kv_heads):
            group = head if num_tables > 1 else 0
            for block, length in zip(row_table[group].tolist(), row_lengths[group].tolist(), strict=True):
                if block >= 0:
                    listed[block, head, :length] = True
    keys[~listed], values[~listed] = float("nan"), float("inf")
    query = inputs.randn((batch, num_kv_heads * group_size, head_dim), source, query_dtype or dtype)
    return Problem(
        inputs.in_layout(query, layout),
        inputs.in_layout(keys, layout),
        inputs.in_layout(values, layout),
        table,
        lengths,
        scale,
    )


def expected(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and log-sum-exp in float64."""
    batch, num_query_heads, head_dim = problem.query.shape
    num_kv_heads = problem.keys.shape[1]
    group_size = num_query_heads // num_kv_heads
    scale = head_dim**-0.5 if problem.scale is None else problem.scale
    output = torch.zeros(batch, num_query_heads, head_dim, dtype=torch.float64)
    lse = torch.full((batch, num_query_heads), float("-inf"), dtype=torch.float64)
    for row in range(batch):
        for head in range(num_query_heads):
            kv_head = head // group_size
            group = kv_head if problem.block_table.shape[1] > 1 else 0
            ids, lengths = (
                problem.block_table[row, group].tolist(),
                problem.block_lengths[row, group].tolist(),
            )
            tokens = [
                (block, slot)
                for block, n in zip(ids, lengths, strict=True)
                if block >= 0
                for slot in range(n)
            ]
            if not tokens:
                continue
            blocks, slots = (torch.tensor(column) for column in zip(*tokens, strict=True))
            scores = problem.keys[blocks, kv_head, slots].double() @ problem.query[row, head].double() * scale
            output[row, head] = scores.softmax(dim=0) @ problem.values[blocks, kv_head, slots].double()
            lse[row, head] = scores.logsumexp(dim=0)
    return output, lse
