"""The data of a case and the calls that work on it: ours, and torch's where torch has something like it.

Every call has data of its own. Together they are several times larger than the GPU's second-level cache, so
that each call finds its data in device memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from dtk_kernels.attention import (
    block_digest,
    block_score,
    merge_partials,
    quantized_decode_attention,
    select_blocks,
    sparse_decode_attention,
)
from dtk_kernels.gpu_bench.cases import NUM_SELECTED, Case
from dtk_kernels.gpu_bench.quantisers import fake_quantize_options
from dtk_kernels.kv import gather_blocks
from dtk_kernels.quant import fake_quantize, pack

__all__ = ["DTYPES", "Attention", "Problem", "attention", "copies_for", "problem", "random_codes"]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_MAX_COPIES = 24
_TIMES_THE_CACHE = 4

Call = Callable[[], object]


@dataclass(frozen=True)
class Problem:
    """What takes part for one case.

    Attributes:
        ours: our calls, each on its own data.
        peers: the same for peers, by name.
    """

    ours: list[Call]
    peers: dict[str, list[Call]] = field(default_factory=dict)


@dataclass(frozen=True)
class Attention:
    """Data of an attention case: pools, and the query and table of each call.

    Attributes:
        keys: `[P, Hkv, S, D]`.
        values: `[P, Hkv, S, D]`.
        queries: `[copies, B, Hq, D]`.
        tables: `[copies, B, 1, N]` int32; every block of the pools is in one of them, once.
        lengths: `[B, 1, N]` int32.
    """

    keys: torch.Tensor
    values: torch.Tensor
    queries: torch.Tensor
    tables: torch.Tensor
    lengths: torch.Tensor

    def ours(self, copy: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend to the blocks of one table."""
        return sparse_decode_attention(
            self.queries[copy],
            self.keys,
            self.values,
            self.tables[copy],
            self.lengths,
            implementation="triton",
        )

    def gathered(self, pool: torch.Tensor, copy: int, tokens: int) -> torch.Tensor:
        """Return the tokens of one table side by side, `[B, Hkv, tokens, D]`."""
        blocks = pool[self.tables[copy, :, 0].long()]  # [B, N, Hkv, S, D]
        return blocks.transpose(1, 2).flatten(2, 3)[:, :, :tokens].contiguous()


def copies_for(moved_bytes: int, cache_bytes: int) -> int:
    """Return how many sets of data it takes to leave a cache behind: 2 to 24."""
    return min(max(-(-_TIMES_THE_CACHE * cache_bytes // moved_bytes), 2), _MAX_COPIES)


def attention(case: Case, copies: int, device: torch.device) -> Attention:
    """Make the data of an attention case."""
    dtype, heads = DTYPES[case.dtype], case.num_kv_heads
    num_pool_blocks = copies * case.batch * case.num_blocks
    pools = [
        torch.randn(num_pool_blocks, heads, case.block_size, case.head_dim, dtype=dtype, device=device)
        for _ in range(2)
    ]
    query_shape = copies, case.batch, heads * case.group_size, case.head_dim
    lengths = torch.full((case.batch, 1, case.num_blocks), case.block_size, dtype=torch.int32)
    lengths[..., -1] = case.tokens - (case.num_blocks - 1) * case.block_size
    return Attention(
        keys=pools[0],
        values=pools[1],
        queries=torch.randn(query_shape, dtype=dtype, device=device),
        tables=_shuffled_blocks(case, copies, device)[:, :, None],
        lengths=lengths.to(device),
    )


def _shuffled_blocks(case: Case, copies: int, device: torch.device) -> torch.Tensor:
    """Every block of a pool once, `[copies, B, N]` int32."""
    blocks = torch.randperm(copies * case.batch * case.num_blocks, device=device).int()
    return blocks.reshape(copies, case.batch, case.num_blocks)


def problem(case: Case, copies: int, device: torch.device) -> Problem:
    """Make the data and the calls of any case but attention, whose peers take part in `peers`."""
    return _MAKERS[case.operation](case, copies, device)


def random_codes(
    shape: Sequence[int], kv_format: str, device: torch.device, source: torch.Generator | None = None
) -> torch.Tensor:
    """Return finite codes of all values, those of E2M1 packed."""
    if kv_format == "int8":
        return torch.randint(-127, 128, tuple(shape), dtype=torch.int8, device=device, generator=source)
    count = 0x7F if kv_format == "e4m3" else 8  # of one sign
    codes = torch.randint(0, 2 * count, tuple(shape), dtype=torch.uint8, device=device, generator=source)
    if kv_format == "e4m3":
        return torch.where(codes < count, codes, codes + 1)
    return pack(codes, implementation="reference")


def _quantized(case: Case, copies: int, device: torch.device) -> Problem:
    assert case.kv_format is not None
    shape = copies * case.batch * case.num_blocks, case.num_kv_heads, case.block_size, case.head_dim
    keys, values = (random_codes(shape, case.kv_format, device) for _ in range(2))
    key_scales, value_scales = (torch.rand(*shape[:3], 1, device=device) / 64 for _ in range(2))
    query_shape = copies, case.batch, case.num_kv_heads * case.group_size, case.head_dim
    queries = torch.randn(query_shape, dtype=DTYPES[case.dtype], device=device)
    tables = _shuffled_blocks(case, copies, device)[:, :, None]
    lengths = torch.full(tables.shape[1:], case.block_size, dtype=torch.int32, device=device)
    return Problem(
        [
            partial(
                quantized_decode_attention, query, keys, values, key_scales, value_scales, table, lengths,
                format=case.kv_format, implementation="triton",
            )
            for query, table in zip(queries, tables, strict=True)
        ]
    )  # fmt: skip


def _digest(case: Case, copies: int, device: torch.device) -> Problem:
    shape = copies, case.batch * case.num_blocks, case.num_kv_heads, case.block_size, case.head_dim
    keys = torch.randn(shape, dtype=DTYPES[case.dtype], device=device)
    lengths = torch.full(shape[1:2], case.block_size, dtype=torch.int32, device=device)
    return Problem(
        [partial(block_digest, each, lengths, implementation="triton") for each in keys],
        {"torch_aminmax": [partial(torch.aminmax, each, dim=2) for each in keys]},
    )


def _score(case: Case, copies: int, device: torch.device) -> Problem:
    dtype, heads = DTYPES[case.dtype], case.num_kv_heads
    shape = 2, copies * case.batch * case.num_blocks, heads, case.head_dim
    pair = torch.randn(shape, dtype=dtype, device=device)
    low, high = pair.amin(dim=0), pair.amax(dim=0)
    query = torch.randn(case.batch, heads * case.group_size, case.head_dim, dtype=dtype, device=device)
    tables = _shuffled_blocks(case, copies, device)
    return Problem([partial(block_score, query, low, high, each, implementation="triton") for each in tables])


def _select(case: Case, copies: int, device: torch.device) -> Problem:
    scores = torch.randn(copies, case.batch, 1, case.num_blocks, device=device)
    count = min(NUM_SELECTED, case.num_blocks)
    return Problem(
        [partial(select_blocks, each, count, implementation="triton") for each in scores],
        {"torch_topk_sort": [partial(_topk_sort, each, count) for each in scores]},
    )


def _topk_sort(scores: torch.Tensor, count: int) -> torch.Tensor:
    return scores.topk(count).indices.sort().values


def _gather(case: Case, copies: int, device: torch.device) -> Problem:
    shape = copies * case.batch * case.num_blocks, case.num_kv_heads, case.block_size, case.head_dim
    pool = torch.randn(shape, dtype=DTYPES[case.dtype], device=device)
    ids = _shuffled_blocks(case, copies, device).flatten(1)
    return Problem(
        [partial(gather_blocks, pool, each, implementation="triton") for each in ids],
        {"torch_index_select": [partial(torch.index_select, pool, 0, each) for each in ids]},
    )


def _merge(case: Case, copies: int, device: torch.device) -> Problem:
    shape = copies, 2, case.batch, case.num_kv_heads * case.group_size, case.head_dim
    outputs, lses = torch.randn(shape, device=device), torch.randn(shape[:-1], device=device)
    pairs = zip(outputs, lses, strict=True)
    return Problem([partial(merge_partials, *pair, implementation="triton") for pair in pairs])


def _fake_quantize(case: Case, copies: int, device: torch.device) -> Problem:
    assert case.kv_format is not None
    shape = copies, case.batch * case.tokens, case.num_kv_heads * case.head_dim
    x = torch.randn(shape, dtype=DTYPES[case.dtype], device=device)
    options = fake_quantize_options(case.kv_format, case.block_size)
    ours = [partial(fake_quantize, each, case.kv_format, implementation="triton", **options) for each in x]
    return Problem([*ours], {"torch_clone": [partial(torch.clone, each) for each in x]})


_MAKERS = {
    "quantized_decode_attention": _quantized,
    "block_digest": _digest,
    "block_score": _score,
    "select_blocks": _select,
    "gather_blocks": _gather,
    "merge_partials": _merge,
    "fake_quantize": _fake_quantize,
}
