"""Sparse decode attention against dense attention in double precision; what no list names is NaN."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention.sparse_decode_attention.triton_kernel import sparse_decode_attention
from tests.kernels.triton import inputs
from tests.kernels.triton.attention_oracle import Problem, expected, make_problem

pytestmark = pytest.mark.interp

# The same for 16-bit K/V: their products are exact in fp32, and the weights keep two terms.
RTOL, ATOL = 2e-5, 2e-5


def check(problem: Problem, device: torch.device, columns_per_split: int | None = None) -> None:
    tensors = [tensor.to(device) for tensor in problem.tensors()]
    with inputs.poisoned_memory():
        output, lse = sparse_decode_attention(
            *tensors, scale=problem.scale, columns_per_split=columns_per_split
        )
    expected_output, expected_lse = expected(problem)
    assert output.dtype == lse.dtype == torch.float32
    torch.testing.assert_close(output.cpu().double(), expected_output, rtol=RTOL, atol=ATOL)
    torch.testing.assert_close(lse.cpu().double(), expected_lse, rtol=RTOL, atol=ATOL)


@settings(max_examples=30)
@given(
    batch=st.integers(1, 3),
    num_kv_heads=st.integers(1, 3),
    group_size=st.integers(1, 8),
    head_dim=inputs.head_dims,
    block_size=inputs.block_sizes,
    num_pool_blocks=st.integers(1, 6),
    num_blocks=st.integers(0, 15),
    table_for_each_head=st.booleans(),
    query_dtype=inputs.dtypes,
    dtype=inputs.dtypes,
    layout=inputs.layouts,
    scale=st.sampled_from((None, 0.3)),
    columns_per_split=st.sampled_from((None, 1, 2, 5)),
    seed=inputs.seeds,
)
def test_equals_reference(
    device: torch.device,
    batch: int,
    num_kv_heads: int,
    group_size: int,
    head_dim: int,
    block_size: int,
    num_pool_blocks: int,
    num_blocks: int,
    table_for_each_head: bool,
    query_dtype: torch.dtype,
    dtype: torch.dtype,
    layout: str,
    scale: float | None,
    columns_per_split: int | None,
    seed: int,
) -> None:
    problem = make_problem(
        batch=batch,
        num_kv_heads=num_kv_heads,
        group_size=group_size,
        head_dim=head_dim,
        block_size=block_size,
        num_pool_blocks=num_pool_blocks,
        num_blocks=num_blocks,
        num_tables=num_kv_heads if table_for_each_head else 1,
        query_dtype=query_dtype,
        dtype=dtype,
        layout=layout,
        scale=scale,
        seed=seed,
    )
    check(problem, device, columns_per_split)


@pytest.mark.parametrize("group_size", [17, 32, 65])
def test_more_query_heads_than_a_tile_row(device: torch.device, group_size: int) -> None:
    check(make_problem(num_kv_heads=2, group_size=group_size, dtype=torch.float16), device)


# A block in three tiles, a tile that a block does not fill, one block and one and a half of them a tile, many
# blocks a tile (looked up one by one, or by a vector), which do not fill it.
@pytest.mark.parametrize(
    ("block_size", "head_dim", "num_blocks"),
    [
        *((150, 128, 11), (65, 128, 11), (64, 128, 11), (40, 128, 11)),
        *((16, 64, 19), (20, 64, 19), (7, 128, 30), (3, 256, 30), (1, 40, 150)),
    ],
)
@pytest.mark.parametrize("dtype", inputs.DTYPES)
def test_blocks_of_every_size_against_tiles(
    device: torch.device, block_size: int, head_dim: int, num_blocks: int, dtype: torch.dtype
) -> None:
    problem = make_problem(
        num_kv_heads=1,
        block_size=block_size,
        head_dim=head_dim,
        num_blocks=num_blocks,
        num_pool_blocks=9,
        dtype=dtype,
    )
    check(problem, device)
    check(problem, device, columns_per_split=num_blocks // 2 - 1)


def test_tables_and_pools_of_any_strides(device: torch.device) -> None:
    problem = make_problem(batch=2, num_tables=2, num_blocks=5, head_dim=40, dtype=torch.float16)
    wide = torch.full((3, 2, 9), 2**30, dtype=torch.int32)
    wide[1:, :, 2:7] = problem.block_lengths
    # Every other sequence, a window of the columns; keys and values with strides of their own.
    strided = Problem(
        problem.query,
        inputs.in_layout(problem.keys, "token-major"),
        inputs.in_layout(problem.values, "padded"),
        problem.block_table.repeat_interleave(2, dim=0)[::2],
        wide[1:, :, 2:7],
        problem.scale,
    )
    tensors = strided.query, strided.keys, strided.values, strided.block_table, strided.block_lengths
    assert [tensor.is_contiguous() for tensor in tensors] == [True, False, False, False, False]
    check(strided, device)


@pytest.mark.parametrize("block_size", [20, 70])  # several blocks a tile; two tiles a block, the second short
def test_lengths_out_of_range_are_the_nearest_in_range(device: torch.device, block_size: int) -> None:
    problem = make_problem(num_blocks=4, block_size=block_size, head_dim=128, dtype=torch.float16, seed=3)
    for pool in (problem.keys, problem.values):
        pool.copy_(inputs.randn(pool.shape, inputs.generator(4), pool.dtype))
    tensors = [tensor.to(device) for tensor in problem.tensors()]
    tensors[4][..., :2], tensors[4][..., 2:] = block_size, 0
    wanted = sparse_decode_attention(*tensors)
    tensors[4][..., :2], tensors[4][..., 2:] = 2**31 - 1, -(2**31)
    assert all(map(torch.equal, wanted, sparse_decode_attention(*tensors)))


def test_scores_far_apart_do_not_overflow(device: torch.device) -> None:
    problem = make_problem(num_blocks=5, dtype=torch.float32)
    problem.keys.mul_(1e3)
    check(problem, device, columns_per_split=2)


def test_empty_selections_among_others(device: torch.device) -> None:
    problem = make_problem(batch=3, num_blocks=4)
    problem.block_table[1] = -1
    problem.block_lengths[2] = 0
    check(problem, device, columns_per_split=1)
    output, lse = sparse_decode_attention(*(tensor.to(device) for tensor in problem.tensors()))
    assert torch.equal(output[1:].cpu(), torch.zeros(output[1:].shape))
    assert torch.equal(lse[1:].cpu(), torch.full(lse[1:].shape, float("-inf")))


def test_blocks_without_tokens(device: torch.device) -> None:
    empty = torch.empty(2, 1, 0, 16, device=device)
    ids = torch.zeros(1, 1, 3, dtype=torch.int32, device=device)
    output, lse = sparse_decode_attention(torch.ones(1, 2, 16, device=device), empty, empty, ids, ids)
    assert output.abs().max() == 0
    assert lse.max() == float("-inf")


def test_ids_beyond_the_pool_are_not_read(device: torch.device) -> None:
    problem = make_problem(num_blocks=4, num_pool_blocks=4)
    as_absent = problem.block_table.clone()
    as_absent[..., 1:3] = -1
    problem.block_table[..., 1], problem.block_table[..., 2] = 4, 2**30
    tensors = [tensor.to(device) for tensor in problem.tensors()]
    output, lse = sparse_decode_attention(*tensors)
    tensors[3] = as_absent.to(device)
    assert all(map(torch.equal, (output, lse), sparse_decode_attention(*tensors)))
