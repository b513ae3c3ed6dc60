"""Cases of the operations on whole blocks: digests, scores, selection, merges and moves.

Sizes are those of decoding from a context of 64k tokens (blocks of 32, 8 KV heads, head size 128, batch 4),
and of one decode step at batch 1, where the cost of a call rules. The kernels run on the calling thread,
as one worker runs them. Every case can check its answers against the references before it is timed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dtk_kernels.attention import block_digest, block_score, merge_partials, select_blocks
from dtk_kernels.attention.block_score import HeadReduction
from dtk_kernels.kv import copy_blocks_, gather_blocks, scatter_blocks_

__all__ = ["Case", "cases"]

_KV_HEADS, _BLOCK_SIZE, _HEAD_DIM, _CONTEXT_BLOCKS = 8, 32, 128, 2048
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


_REDUCTIONS: list[tuple[HeadReduction, int]] = [
    ("layer", 4), ("group_sum", 4), ("group_max", 1), ("group_max", 4), ("group_max", 16)
]  # fmt: skip
# (batch, groups, columns, selected)
_SMALL_SELECTIONS = [(1, 1, 64, 16), (1, 1, 2048, 64)]
_SELECTIONS = [
    (4, 8, 2048, 64),
    (4, 8, 2048, 512),
    (4, 8, 2048, 2048),
    (4, 8, 65536, 64),
    (4, 8, 65536, 8192),
]


@dataclass(frozen=True)
class Case:
    """One operation at one size.

    Attributes:
        operation: Name of the public function.
        size: Sizes in words.
        dtype: `fp32`, `fp16` or `bf16`.
        read_bytes: Bytes that must be read, at least.
        written_bytes: Bytes that must be written, at least.
        ours: The call that is timed; returns its results.
        peers: torch's ways to the same results, by name.
        check: Raises AssertionError where our results are not the reference's.
    """

    operation: str
    size: str
    dtype: str
    read_bytes: int
    written_bytes: int
    ours: Callable[[], object]
    peers: Mapping[str, Callable[[], object]]
    check: Callable[[], None]


def cases(*, small: bool) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield operation and maker of each case: data are made when a case is, and freed with it."""
    for dtype in _DTYPES:
        yield "block_digest", partial(_digest, dtype, 1 if small else _CONTEXT_BLOCKS)
    for reduction, group_size in _REDUCTIONS:
        for dtype in _DTYPES:
            yield "block_score", partial(_score, dtype, reduction, group_size, small)
    for sizes in _SMALL_SELECTIONS if small else _SELECTIONS:
        yield "select_blocks", partial(_select, *sizes)
    for num_partials in (2, 8):
        yield "merge_partials", partial(_merge, num_partials, 1 if small else 64)
    for num_moved in (1, 4) if small else (64, 1024):
        yield "gather_blocks", partial(_gather, num_moved)
        yield "scatter_blocks_", partial(_scatter, num_moved)
        yield "copy_blocks_", partial(_copy, num_moved)


def _random(*shape: int, dtype: str = "fp32") -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator).to(_DTYPES[dtype])


def _digest(dtype: str, num_blocks: int) -> Case:
    keys = _random(num_blocks, _KV_HEADS, _BLOCK_SIZE, _HEAD_DIM, dtype=dtype)
    lengths = torch.full((num_blocks,), _BLOCK_SIZE, dtype=torch.int32)

    def ours() -> tuple[Tensor, Tensor]:
        return block_digest(keys, lengths)

    def check() -> None:
        expected = block_digest(keys[::16], lengths[::16], implementation="reference")
        for computed, wanted in zip(ours(), expected, strict=True):
            assert torch.equal(computed[::16], wanted)

    peers = {
        "amin and amax": lambda: (keys.amin(dim=2), keys.amax(dim=2)),
        "aminmax": lambda: keys.aminmax(dim=2),
    }
    written = 2 * keys.nbytes // _BLOCK_SIZE
    return Case("block_digest", f"{num_blocks} blocks", dtype, keys.nbytes, written, ours, peers, check)


def _score(dtype: str, reduction: HeadReduction, group_size: int, small: bool) -> Case:
    batch, num_blocks = (1, 64) if small else (4, _CONTEXT_BLOCKS)
    query = _random(batch, _KV_HEADS * group_size, _HEAD_DIM)
    digests = _random(batch * num_blocks, 2, _KV_HEADS, _HEAD_DIM).sort(dim=1).values.to(_DTYPES[dtype])
    key_min, key_max = digests[:, 0].contiguous(), digests[:, 1].contiguous()
    table = torch.arange(batch * num_blocks, dtype=torch.int32).view(batch, num_blocks)
    grouped = query.to(_DTYPES[dtype]).view(batch, _KV_HEADS, group_size, _HEAD_DIM)

    def ours() -> Tensor:
        return block_score(query, key_min, key_max, table, head_reduction=reduction)

    def check() -> None:
        some = table[:, ::16]
        expected = block_score(
            query, key_min, key_max, some, head_reduction=reduction, implementation="reference"
        )
        torch.testing.assert_close(ours()[..., ::16], expected, rtol=1e-4, atol=1e-3)

    lows, highs = (x.view(batch, num_blocks, _KV_HEADS, _HEAD_DIM) for x in (key_min, key_max))

    def parts() -> tuple[Tensor, Tensor]:
        if reduction == "group_max":
            return grouped.clamp(min=0), grouped.clamp(max=0)
        return grouped.clamp(min=0).sum(dim=2, keepdim=True), grouped.clamp(max=0).sum(dim=2, keepdim=True)

    def einsum() -> Tensor:
        positive, negative = parts()
        bounds = torch.einsum("bhgd,bnhd->bhgn", positive, highs)
        bounds = bounds + torch.einsum("bhgd,bnhd->bhgn", negative, lows)
        return bounds.float().sum(dim=(1, 2))[:, None] if reduction == "layer" else bounds.amax(dim=2).float()

    def matmul() -> Tensor:
        positive, negative = parts()
        if reduction == "layer":
            rows = zip(
                highs.flatten(2), positive.flatten(1), lows.flatten(2), negative.flatten(1), strict=True
            )
            return torch.stack([high @ p + low @ n for high, p, low, n in rows]).float()[:, None]
        rows = zip(highs, positive, lows, negative, strict=True)  # permuted, not copied
        bounds = [p @ high.permute(1, 2, 0) + n @ low.permute(1, 2, 0) for high, p, low, n in rows]
        return torch.stack(bounds).amax(dim=2).float()

    size = f"{batch} x {num_blocks} blocks, {reduction}, group {group_size}"
    peers = {"einsum of clamped queries": einsum, "matmul of clamped queries": matmul}
    return Case("block_score", size, dtype, 2 * key_min.nbytes, 0, ours, peers, check)


def _select(batch: int, num_groups: int, num_blocks: int, num_selected: int) -> Case:
    scores = _random(batch, num_groups, num_blocks)
    forced = torch.zeros(scores.shape[0], num_blocks, dtype=torch.bool)
    forced[:, [0, num_blocks - 1]] = True

    def ours() -> Tensor:
        return select_blocks(scores, num_selected, forced=forced)

    def check() -> None:
        expected = select_blocks(scores, num_selected, forced=forced, implementation="reference")
        assert torch.equal(ours(), expected)

    def topk() -> Tensor:
        ranked = scores.masked_fill(forced[:, None], float("inf"))
        return ranked.topk(num_selected, sorted=False).indices.sort().values.int()

    size = f"{num_selected} of {num_blocks}, {scores.shape[0] * num_groups} rows"
    return Case("select_blocks", size, "fp32", scores.nbytes, 0, ours, {"topk and sort": topk}, check)


def _merge(num_partials: int, batch: int) -> Case:
    rows = (batch, 32)
    outputs, lses = _random(num_partials, *rows, _HEAD_DIM), _random(num_partials, *rows) * 5

    def ours() -> tuple[Tensor, Tensor]:
        return merge_partials(outputs, lses)

    def check() -> None:
        torch.testing.assert_close(ours(), merge_partials(outputs, lses, implementation="reference"))

    def weighted_sum() -> tuple[Tensor, Tensor]:
        lse = lses.logsumexp(dim=0)
        return torch.einsum("pbh,pbhd->bhd", (lses - lse).exp(), outputs), lse

    size = f"{num_partials} partials of {rows[0]} x {rows[1]} rows"
    written = outputs[0].nbytes
    peers = {"logsumexp and einsum": weighted_sum}
    return Case("merge_partials", size, "fp32", outputs.nbytes, written, ours, peers, check)


def _pool_and_ids(num_moved: int) -> tuple[Tensor, Tensor]:
    """A pool of 128 KiB blocks, twice as many as are moved, and which of them are, in no order."""
    pool = _random(2 * num_moved, _KV_HEADS, _BLOCK_SIZE, _HEAD_DIM)
    generator = torch.Generator().manual_seed(5)
    return pool, torch.randperm(2 * num_moved, generator=generator)[:num_moved].int()


def _gather(num_moved: int) -> Case:
    pool, ids = _pool_and_ids(num_moved)
    long_ids = ids.long()

    def ours() -> Tensor:
        return gather_blocks(pool, ids)

    def check() -> None:
        assert torch.equal(ours(), gather_blocks(pool, ids, implementation="reference"))

    moved = pool.nbytes // 2
    peers = {"index_select": lambda: pool.index_select(0, long_ids), "indexing": lambda: pool[long_ids]}
    return Case("gather_blocks", f"{num_moved} of 128 KiB", "fp32", moved, moved, ours, peers, check)


def _scatter(num_moved: int) -> Case:
    pool, ids = _pool_and_ids(num_moved)
    blocks, long_ids = pool[:num_moved].clone().neg_(), ids.long()

    def ours() -> None:
        scatter_blocks_(pool, ids, blocks)

    def check() -> None:
        expected = pool.clone()
        scatter_blocks_(expected, ids, blocks, implementation="reference")
        ours()
        assert torch.equal(pool, expected)

    def indexing() -> None:
        pool[long_ids] = blocks

    peers = {"index_copy_": lambda: pool.index_copy_(0, long_ids, blocks), "indexing": indexing}
    size = f"{num_moved} of 128 KiB"
    return Case("scatter_blocks_", size, "fp32", blocks.nbytes, blocks.nbytes, ours, peers, check)


def _copy(num_moved: int) -> Case:
    source, source_ids = _pool_and_ids(num_moved)
    target, target_ids = torch.zeros_like(source), source_ids.flip(0)
    long_source_ids, long_target_ids = source_ids.long(), target_ids.long()

    def ours() -> None:
        copy_blocks_(source, source_ids, target, target_ids)

    def check() -> None:
        expected = target.clone()
        copy_blocks_(source, source_ids, expected, target_ids, implementation="reference")
        ours()
        assert torch.equal(target, expected)

    def through_index_select() -> None:
        target.index_copy_(0, long_target_ids, source.index_select(0, long_source_ids))

    moved = source.nbytes // 2
    peers = {"index_select, index_copy_": through_index_select}
    return Case("copy_blocks_", f"{num_moved} of 128 KiB", "fp32", moved, moved, ours, peers, check)
