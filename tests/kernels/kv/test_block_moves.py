"""Gather, scatter and copy of blocks against loops over blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.kv import copy_blocks_, gather_blocks, scatter_blocks_
from tests.kernels.implementations import BOTH, DIRECT

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64]


@st.composite
def pools(draw: st.DrawFn, block_shape: tuple[int, ...], dtype: torch.dtype, label: int) -> torch.Tensor:
    """A pool with its dims in any order in memory and slack at the end of each."""
    shape = (draw(st.integers(0 if label < 0 else 1, 6)), *block_shape)
    order = draw(st.permutations(range(len(shape))))
    slack = [draw(st.integers(0, 1)) for _ in shape]
    memory_shape = [shape[dim] + slack[dim] for dim in order]
    numel = torch.Size(memory_shape).numel()
    memory = ((torch.arange(numel) * 7 + label) % 101).reshape(memory_shape).to(dtype)
    pool = memory.permute([order.index(dim) for dim in range(len(shape))])
    return pool[tuple(slice(0, size) for size in shape)]


@st.composite
def moves(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    block_shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    dtype = draw(st.sampled_from(DTYPES))
    source, target = draw(pools(block_shape, dtype, 3)), draw(pools(block_shape, dtype, 50))
    count = draw(st.integers(0, 8))
    source_ids = draw(st.lists(st.integers(-1, source.shape[0] - 1), min_size=count, max_size=count))
    free = draw(st.permutations(range(target.shape[0])))
    skipped = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    target_ids = [-1 if skip or slot >= len(free) else free[slot] for slot, skip in enumerate(skipped)]
    return (
        source,
        torch.tensor(source_ids, dtype=torch.int32),
        target,
        torch.tensor(target_ids, dtype=torch.int32),
    )


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=80)
@given(case=moves())
def test_gather_and_scatter_move_named_blocks(
    case: tuple[torch.Tensor, ...], implementation: str | None
) -> None:
    source, source_ids, target, target_ids = case
    blocks = gather_blocks(source, source_ids, implementation=implementation)
    assert blocks.is_contiguous()
    assert blocks.dtype == source.dtype
    for block, block_id in zip(blocks, source_ids.tolist(), strict=True):
        assert torch.equal(block, torch.zeros_like(block) if block_id < 0 else source[block_id])
    written, expected = target.clone(), target.clone()
    assert scatter_blocks_(written, target_ids, blocks, implementation=implementation) is None
    for block, block_id in zip(blocks, target_ids.tolist(), strict=True):
        if block_id >= 0:
            expected[block_id] = block
    assert torch.equal(written, expected)


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=80)
@given(case=moves())
def test_copy_moves_pairs_and_touches_nothing_else(
    case: tuple[torch.Tensor, ...], implementation: str | None
) -> None:
    source, source_ids, target, target_ids = case
    expected, source_before = target.clone(), source.clone()
    whole = target.as_strided((target.untyped_storage().size() // target.element_size(),), (1,), 0)
    slack_before = whole.clone()
    copy_blocks_(source, source_ids, target, target_ids, implementation=implementation)
    for source_id, target_id in zip(source_ids.tolist(), target_ids.tolist(), strict=True):
        if source_id >= 0 and target_id >= 0:
            expected[target_id] = source[source_id]
    assert torch.equal(target, expected)
    assert torch.equal(source, source_before)
    target.copy_(slack_before.as_strided(target.shape, target.stride(), target.storage_offset()))
    assert torch.equal(whole, slack_before)  # outside the pool's blocks nothing had changed


@pytest.mark.parametrize("implementation", BOTH)
def test_within_one_pool_reads_come_before_writes(implementation: str | None) -> None:
    pool = torch.arange(4.0)[:, None].repeat(1, 3)
    ids = torch.tensor([0, 1, 2, -1, 3], dtype=torch.int32)
    target_ids = torch.tensor([1, 2, 0, 3, -1], dtype=torch.int32)
    copy_blocks_(pool, ids, pool, target_ids, implementation=implementation)
    assert pool[:, 0].tolist() == [2.0, 0.0, 1.0, 3.0]
    copy_blocks_(pool[:3], ids[:2], pool[1:], ids[1:3], implementation=implementation)
    assert pool[:, 0].tolist() == [2.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize("implementation", BOTH)
def test_scatter_reads_a_shared_pool_before_it_writes(implementation: str | None) -> None:
    pool = torch.arange(4.0)[:, None].repeat(1, 3)
    ids = torch.tensor([1, 2, 3], dtype=torch.int32)
    scatter_blocks_(pool, ids, pool[:3], implementation=implementation)
    assert pool[:, 0].tolist() == [0.0, 0.0, 1.0, 2.0]


BAD_IDS = [([0, 4], "holds 4; ids are -1 (no block) or below 4, the pool size"), ([-2], "holds -2; ids")]


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize(("ids", "message"), BAD_IDS)
def test_ids_outside_the_pool_write_nothing(ids: list[int], message: str, implementation: str | None) -> None:
    pool, bad = torch.zeros(4, 2), torch.tensor(ids, dtype=torch.int32)
    blocks, good = torch.ones(len(ids), 2), torch.arange(len(ids), dtype=torch.int32)
    other = torch.ones(4, 2)
    for name, call in (
        ("block_ids", lambda: gather_blocks(pool, bad, implementation=implementation)),
        ("block_ids", lambda: scatter_blocks_(pool, bad, blocks, implementation=implementation)),
        ("source_ids", lambda: copy_blocks_(other, bad, pool, good, implementation=implementation)),
        ("target_ids", lambda: copy_blocks_(other, good, pool, bad, implementation=implementation)),
    ):
        with pytest.raises(ValueError, match="ids") as caught:
            call()
        assert str(caught.value).startswith(f"{name} {message}")
    assert not pool.any()


@pytest.mark.parametrize("implementation", BOTH)
def test_a_block_is_written_once(implementation: str | None) -> None:
    pool, twice = torch.zeros(4, 2), torch.tensor([3, -1, 3, -1], dtype=torch.int32)
    message = r"^(block|target)_ids holds 3 more than once; a block can be written only once$"
    with pytest.raises(ValueError, match=message):
        scatter_blocks_(pool, twice, torch.ones(4, 2), implementation=implementation)
    with pytest.raises(ValueError, match=message):
        copy_blocks_(torch.ones(4, 2), twice.abs(), pool, twice, implementation=implementation)
    assert not pool.any()
    once = torch.tensor([3, 1, -1, -1], dtype=torch.int32)  # its second 3 is no pair
    copy_blocks_(torch.ones(4, 2), once, pool, twice, implementation=implementation)
    assert pool[:, 0].tolist() == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("implementation", DIRECT)
def test_shapes_and_dtypes_must_fit(implementation: str) -> None:
    pool, ids = torch.zeros(4, 2), torch.zeros(1, dtype=torch.int32)
    one_each = "blocks must have one block of the pool's shape for each of the 1 ids"
    for message, call in (
        (f"{one_each}, got [1, 3] for a pool of [4, 2]",
         lambda: scatter_blocks_(pool, ids, torch.zeros(1, 3), implementation=implementation)),
        ("blocks must have the dtype of pool (float32), got float16",
         lambda: scatter_blocks_(pool, ids, torch.zeros(1, 2).half(), implementation=implementation)),
        ("source_pool and target_pool must hold blocks of one shape, got pools of [4, 2] and [4, 3]",
         lambda: copy_blocks_(pool, ids, torch.zeros(4, 3), ids, implementation=implementation)),
        ("target_pool must have the dtype of source_pool (float32), got float16",
         lambda: copy_blocks_(pool, ids, pool.half(), ids, implementation=implementation)),
        ("target_ids has shape [2]: dim 0 (n) must be 1 as in source_ids, got 2",
         lambda: copy_blocks_(pool, ids, pool, ids.repeat(2), implementation=implementation)),
        ("block_ids must be int32, got int64",
         lambda: gather_blocks(pool, ids.long(), implementation=implementation)),
        ("pool must have shape [num_pool_blocks, ...], got []",
         lambda: gather_blocks(torch.tensor(1.0), ids, implementation=implementation)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="must") as caught:
            call()
        assert str(caught.value) == message
