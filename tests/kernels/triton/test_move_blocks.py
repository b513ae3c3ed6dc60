"""Gather, scatter and copy of blocks: every bit must arrive, and no other bit may change."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.kv.copy_blocks.triton_kernel import copy_blocks_
from dtk_kernels.kv.gather_blocks.triton_kernel import gather_blocks
from dtk_kernels.kv.scatter_blocks.triton_kernel import scatter_blocks_
from tests.kernels.triton import inputs

pytestmark = pytest.mark.interp

ALL_DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.float8_e4m3fn,
    torch.int8,
    torch.bool,
)
block_shapes = st.one_of(
    st.just(()),
    st.tuples(st.integers(1, 40)),
    st.tuples(st.integers(1, 3), st.sampled_from((1, 3, 16)), st.sampled_from((1, 8, 20, 128))),
    st.just((2, 32, 256)),  # more than one tile
)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(tensor.shape[0], -1).view(torch.uint8)


def random_pool(
    num_blocks: int, shape: tuple[int, ...], dtype: torch.dtype, layout: str, source: torch.Generator
) -> torch.Tensor:
    """Return a pool of random bits (NaN payloads among them) of any dtype."""
    size = dtype.itemsize
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (num_blocks, *shape, size), generator=source)
    pool = bits.to(torch.uint8).view(dtype).reshape(num_blocks, *shape)
    if layout == "token-major" and len(shape) == 3:
        return pool.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "padded" and shape:
        return pool.repeat_interleave(2, dim=-1)[..., ::2]  # not even the last dim is contiguous
    return pool


@settings(max_examples=20)
@given(
    shape=block_shapes,
    dtype=st.sampled_from(ALL_DTYPES),
    layout=inputs.layouts,
    ids=st.lists(st.integers(-1, 4), max_size=6),
    seed=inputs.seeds,
)
def test_gather(
    device: torch.device, shape: tuple[int, ...], dtype: torch.dtype, layout: str, ids: list[int], seed: int
) -> None:
    pool = random_pool(5, shape, dtype, layout, inputs.generator(seed))
    on_device = pool.to(device)
    assert on_device.stride() == pool.stride()
    with inputs.poisoned_memory():
        blocks = gather_blocks(on_device, torch.tensor(ids, dtype=torch.int32, device=device)).cpu()
    assert blocks.shape == (len(ids), *shape)
    assert blocks.is_contiguous()
    for block, index in zip(as_bytes(blocks) if ids else [], ids, strict=True):
        expected = as_bytes(pool)[index] if index >= 0 else torch.zeros_like(block)
        assert torch.equal(block, expected)


@settings(max_examples=20)
@given(
    shape=block_shapes,
    dtype=st.sampled_from(ALL_DTYPES),
    layout=inputs.layouts,
    ids=st.lists(st.integers(0, 4), max_size=5, unique=True),
    absent=st.integers(0, 6),
    seed=inputs.seeds,
)
def test_scatter(
    device: torch.device,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layout: str,
    ids: list[int],
    absent: int,
    seed: int,
) -> None:
    ids = [*ids[:absent], -1, *ids[absent:], -1]
    source = inputs.generator(seed)
    pool = random_pool(5, shape, dtype, layout, source)
    blocks = random_pool(len(ids), shape, dtype, "dense", source)
    expected = as_bytes(pool).clone()
    for block, index in zip(as_bytes(blocks), ids, strict=True):
        if index >= 0:
            expected[index] = block
    on_device = pool.to(device)
    scatter_blocks_(on_device, torch.tensor(ids, dtype=torch.int32, device=device), blocks.to(device))
    assert torch.equal(as_bytes(on_device.cpu()), expected)


@settings(max_examples=20)
@given(
    shape=block_shapes,
    dtype=st.sampled_from(ALL_DTYPES),
    layouts=st.tuples(inputs.layouts, inputs.layouts),
    pairs=st.lists(
        st.tuples(st.integers(-1, 3), st.integers(-1, 4)), max_size=6, unique_by=lambda pair: pair[1]
    ),
    same_pool=st.booleans(),
    seed=inputs.seeds,
)
def test_copy(
    device: torch.device,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    layouts: tuple[str, str],
    pairs: list[tuple[int, int]],
    same_pool: bool,
    seed: int,
) -> None:
    generator = inputs.generator(seed)
    source = random_pool(5, shape, dtype, layouts[0], generator)
    target = source if same_pool else random_pool(5, shape, dtype, layouts[1], generator)
    expected = as_bytes(target).clone()
    for source_id, target_id in pairs:
        if source_id >= 0 and target_id >= 0:
            expected[target_id] = as_bytes(source)[source_id]
    source_ids, target_ids = (
        torch.tensor([pair[side] for pair in pairs], dtype=torch.int32, device=device) for side in (0, 1)
    )
    on_device = source.to(device)
    target_on_device = on_device if same_pool else target.to(device)
    copy_blocks_(on_device, source_ids, target_on_device, target_ids)
    assert torch.equal(as_bytes(target_on_device.cpu()), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8])
@pytest.mark.parametrize(
    ("first", "length", "row"), [(1, 8, 16), (4, 5, 16), (8, 6, 16), (8, 8, 16), (0, 8, 9)]
)  # where a row begins, how long it is and how far the next one is: nothing, or all, divides by 8 bytes
def test_words_are_never_wider_than_rows_allow(
    device: torch.device, dtype: torch.dtype, first: int, length: int, row: int
) -> None:
    pool = torch.arange(3 * 4 * row).reshape(3, 4, row).to(dtype).to(device)
    window = torch.as_strided(pool, (3, 4, length), (4 * row, row, 1), min(first, row - length))
    before = window.clone()
    ids = torch.tensor([2, 0], dtype=torch.int32, device=device)
    assert torch.equal(gather_blocks(window, ids), before[[2, 0]])
    other = torch.zeros_like(pool)
    target = torch.as_strided(other, window.shape, window.stride(), window.storage_offset())
    copy_blocks_(window, ids, target, ids)
    assert torch.equal(target[[2, 0]], before[[2, 0]])
    assert other.count_nonzero() == before[[2, 0]].count_nonzero()
    expected = pool.clone()
    torch.as_strided(expected, window.shape, window.stride(), window.storage_offset())[[2, 0]] = before[:2]
    scatter_blocks_(window, ids, before[:2])
    assert torch.equal(pool, expected)


def test_scatter_reads_a_shared_pool_before_it_writes(device: torch.device) -> None:
    pool = torch.arange(4.0, device=device)[:, None].repeat(1, 3)
    scatter_blocks_(pool, torch.tensor([1, 2, 3], dtype=torch.int32, device=device), pool[:3])
    assert pool[:, 0].tolist() == [0.0, 0.0, 1.0, 2.0]


def test_ids_beyond_the_pools_are_left_out(device: torch.device) -> None:
    source, target = torch.ones(2, 3, device=device), torch.zeros(4, 3, device=device)
    source_ids = torch.tensor([2, 1, 0, 2**30], dtype=torch.int32, device=device)
    target_ids = torch.tensor([0, 4, 1, 2], dtype=torch.int32, device=device)
    copy_blocks_(source, source_ids, target, target_ids)
    assert target.sum(dim=1).tolist() == [0.0, 3.0, 0.0, 0.0]


def test_layout_of_too_many_strides_is_refused(device: torch.device) -> None:
    pool = torch.zeros(2, 4, 4, 4, 4, device=device)[:, ::2, ::2, ::2, ::2]
    with pytest.raises(ValueError, match="at most 3 dimensions"):
        gather_blocks(pool, torch.zeros(1, dtype=torch.int32, device=device))
