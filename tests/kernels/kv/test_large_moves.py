"""Moves of tens of megabytes, which kernels may make in another way (past the cache), at odd addresses."""

import pytest
import torch

from dtk_kernels.kv import copy_blocks_, gather_blocks, scatter_blocks_
from dtk_kernels.workers import Workers
from tests.kernels.implementations import DIRECT

MEBIBYTE = 1024 * 1024


def odd_pool(num_blocks: int, rows: int, row_bytes: int, first_byte: int) -> torch.Tensor:
    """int8 [num_blocks, rows, row_bytes] at an odd address, with a gap of 5 bytes after each row."""
    generator = torch.Generator().manual_seed(first_byte)
    size = num_blocks * rows * (row_bytes + 5) + first_byte
    memory = torch.randint(-128, 128, (size,), generator=generator, dtype=torch.int8)
    return memory[first_byte:].view(num_blocks, rows, row_bytes + 5)[..., :row_bytes]


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize(("rows", "row_bytes"), [(1, MEBIBYTE - 3), (3, 349_529), (1000, 1057), (1000, 1000)])
def test_large_moves_are_exact(rows: int, row_bytes: int, implementation: str) -> None:
    source, target = odd_pool(20, rows, row_bytes, 1), odd_pool(22, rows, row_bytes, 3)
    before = target.clone()
    ids = torch.randperm(20, generator=torch.Generator().manual_seed(1)).int()
    target_ids = ids.flip(0) + 1
    copy_blocks_(source, ids, target, target_ids, implementation=implementation)
    assert torch.equal(target[target_ids.long()], source[ids.long()])
    assert torch.equal(target[[0, 21]], before[[0, 21]])
    whole = target.as_strided((22 * rows, row_bytes + 5), (row_bytes + 5, 1))[:-1]
    gaps = odd_pool(22, rows, row_bytes, 3).as_strided(whole.shape, whole.stride(), 3)[:, row_bytes:]
    assert torch.equal(whole[:, row_bytes:], gaps)
    gathered = gather_blocks(target, target_ids, implementation=implementation)
    assert torch.equal(gathered, source[ids.long()])
    scatter_blocks_(target, ids, source, implementation=implementation)
    assert torch.equal(target[ids.long()], source)


@pytest.mark.native
def test_a_waiter_sees_all_that_threads_copied() -> None:
    source, target = odd_pool(80, 1, MEBIBYTE // 2 - 3, 1), odd_pool(80, 1, MEBIBYTE // 2 - 3, 3)
    ids = torch.arange(80, dtype=torch.int32)
    with Workers(2) as workers:
        for _ in range(3):
            target.zero_()
            workers.submit_copy_blocks([(source, ids, target, ids)]).wait()
            assert torch.equal(target, source)
