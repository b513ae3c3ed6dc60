"""Cases of the moves of blocks: gather, scatter, copy from pool to pool; blocks of 128 KiB, in no order."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from dtk_kernels.benchmark.case import Case
from dtk_kernels.kv import copy_blocks_, gather_blocks, scatter_blocks_

__all__ = ["kv_cases"]

_BLOCK_SHAPE = (8, 32, 128)  # KV heads, tokens, head size; float32


def kv_cases(*, small: bool) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield operation and maker of each case: data are made when a case is, and freed with it."""
    for num_moved in (1, 4) if small else (64, 1024):
        yield "gather_blocks", partial(_gather, num_moved)
        yield "scatter_blocks_", partial(_scatter, num_moved)
        yield "copy_blocks_", partial(_copy, num_moved)


def _pool_and_ids(num_moved: int) -> tuple[Tensor, Tensor]:
    """A pool of twice as many blocks as are moved, and the ids of those."""
    generator = torch.Generator().manual_seed(5)
    pool = torch.randn((2 * num_moved, *_BLOCK_SHAPE), generator=generator)
    return pool, torch.randperm(2 * num_moved, generator=generator)[:num_moved].int()


def _gather(num_moved: int) -> Case:
    pool, ids = _pool_and_ids(num_moved)
    long_ids = ids.long()
    return Case(
        "gather_blocks",
        f"{num_moved} of 128 KiB",
        "fp32",
        read_bytes=pool.nbytes // 2,
        written_bytes=pool.nbytes // 2,
        ours=lambda: gather_blocks(pool, ids),
        peers={"index_select": lambda: pool.index_select(0, long_ids), "indexing": lambda: pool[long_ids]},
        reference=lambda: gather_blocks(pool, ids, implementation="reference"),
        peer_tolerance=0,
    )


def _scatter(num_moved: int) -> Case:
    pool, ids = _pool_and_ids(num_moved)
    blocks, long_ids = -pool[:num_moved], ids.long()

    def ours(implementation: str | None = None) -> Tensor:
        scatter_blocks_(pool, ids, blocks, implementation=implementation)
        return pool

    def indexing() -> Tensor:
        pool[long_ids] = blocks
        return pool

    def reference() -> Tensor:
        return ours("reference").clone()

    return Case(
        "scatter_blocks_",
        f"{num_moved} of 128 KiB",
        "fp32",
        read_bytes=blocks.nbytes,
        written_bytes=blocks.nbytes,
        ours=ours,
        peers={"index_copy_": lambda: pool.index_copy_(0, long_ids, blocks), "indexing": indexing},
        reference=reference,
        reset=lambda: pool.fill_(7.0),
        peer_tolerance=0,
    )


def _copy(num_moved: int) -> Case:
    source, source_ids = _pool_and_ids(num_moved)
    target, target_ids = torch.zeros_like(source), source_ids.flip(0)
    long_source_ids, long_target_ids = source_ids.long(), target_ids.long()

    def ours(implementation: str | None = None) -> Tensor:
        copy_blocks_(source, source_ids, target, target_ids, implementation=implementation)
        return target

    def reference() -> Tensor:
        return ours("reference").clone()

    def by_index() -> Tensor:
        return target.index_copy_(0, long_target_ids, source.index_select(0, long_source_ids))

    return Case(
        "copy_blocks_",
        f"{num_moved} of 128 KiB",
        "fp32",
        read_bytes=source.nbytes // 2,
        written_bytes=source.nbytes // 2,
        ours=ours,
        peers={"index_select, index_copy_": by_index},
        reference=reference,
        reset=lambda: target.fill_(7.0),
        peer_tolerance=0,
    )
