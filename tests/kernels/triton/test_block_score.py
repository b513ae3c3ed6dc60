"""Block scores against the reference, on digests whose unlisted rows are NaN."""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention.block_score import HeadReduction
from dtk_kernels.attention.block_score.reference import block_score as reference
from dtk_kernels.attention.block_score.triton_kernel import block_score
from tests.kernels.triton import inputs

pytestmark = pytest.mark.interp

# Sums of head_dim products in fp32, in another order than the reference's.
RTOL, ATOL = 1e-5, 1e-4


@settings(max_examples=20)
@given(
    batch=st.integers(1, 3),
    num_kv_heads=st.integers(1, 3),
    group_size=st.integers(1, 8),
    num_pool_blocks=st.integers(1, 8),
    num_blocks=st.integers(0, 40),
    head_dim=inputs.head_dims,
    head_reduction=st.sampled_from(get_args(HeadReduction)),
    query_dtype=inputs.dtypes,
    dtype=inputs.dtypes,
    layout=inputs.layouts,
    seed=inputs.seeds,
)
def test_equals_reference(
    device: torch.device,
    batch: int,
    num_kv_heads: int,
    group_size: int,
    num_pool_blocks: int,
    num_blocks: int,
    head_dim: int,
    head_reduction: HeadReduction,
    query_dtype: torch.dtype,
    dtype: torch.dtype,
    layout: str,
    seed: int,
) -> None:
    source = inputs.generator(seed)
    table = inputs.randint(-1, num_pool_blocks - 1, (batch, num_blocks), source)
    listed = torch.isin(torch.arange(num_pool_blocks), table)
    pair = inputs.randn((2, num_pool_blocks, num_kv_heads, head_dim), source, dtype)
    pair[:, ~listed] = float("nan")
    low, high = pair.amin(dim=0), pair.amax(dim=0)
    if listed[0]:  # an empty block
        low[0], high[0] = float("inf"), float("-inf")
    query = inputs.randn((batch, num_kv_heads * group_size, head_dim), source, query_dtype)
    query = inputs.in_layout(query, layout).to(device)
    low, high = inputs.in_layout(low, layout).to(device), high.to(device)
    table = table.to(device)
    with inputs.poisoned_memory():
        scores = block_score(query, low, high, table, head_reduction=head_reduction)
    expected = reference(query, low, high, table, head_reduction=head_reduction)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, expected, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("head_reduction", get_args(HeadReduction))
@pytest.mark.parametrize(
    ("num_kv_heads", "group_size", "head_dim"),
    [(3, 2, 256), (9, 1, 128), (1, 9, 16), (2, 11, 24)],  # more heads than a tile, more members than at once
)
def test_many_heads(
    device: torch.device, num_kv_heads: int, group_size: int, head_dim: int, head_reduction: HeadReduction
) -> None:
    source = inputs.generator(num_kv_heads)
    pair = inputs.randn((2, 6, num_kv_heads, head_dim), source, torch.float16).to(device)
    query = inputs.randn((2, num_kv_heads * group_size, head_dim), source, torch.float16).to(device)
    table = inputs.randint(-1, 5, (2, 20), source).to(device)
    arguments = query, pair.amin(dim=0), pair.amax(dim=0), table
    scores = block_score(*arguments, head_reduction=head_reduction)
    wanted = reference(*arguments, head_reduction=head_reduction)
    torch.testing.assert_close(scores, wanted, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("head_reduction", get_args(HeadReduction))
def test_an_empty_block_is_last_whatever_the_query(
    device: torch.device, head_reduction: HeadReduction
) -> None:
    low, high = torch.zeros(2, 2, 8, device=device), torch.zeros(2, 2, 8, device=device)
    low[1], high[1] = float("inf"), float("-inf")
    table = torch.tensor([[0, 1]], dtype=torch.int32, device=device)
    for query in (torch.zeros(1, 4, 8, device=device), torch.ones(1, 4, 8, device=device)):
        scores = block_score(query, low, high, table, head_reduction=head_reduction)
        assert scores.unique(dim=1).tolist() == [[[0.0, float("-inf")]]]


def test_a_window_of_a_table(device: torch.device) -> None:
    source = inputs.generator(5)
    low = inputs.randn((4, 1, 8), source, torch.float32).to(device)
    query = inputs.randn((3, 1, 8), source, torch.float32).to(device)
    table = inputs.randint(-1, 3, (3, 9), source).to(device)[:, 2:7]
    torch.testing.assert_close(
        block_score(query, low, low, table), reference(query, low, low, table), rtol=RTOL, atol=ATOL
    )


def test_scores_bound_every_key_of_the_block(device: torch.device) -> None:
    source = inputs.generator(0)
    keys = inputs.randn((4, 1, 16, 24), source, torch.float32).to(device)
    query = inputs.randn((1, 2, 24), source, torch.float32).to(device)
    table = torch.arange(4, dtype=torch.int32, device=device)[None]
    bounds = block_score(query, keys.amin(dim=2), keys.amax(dim=2), table, head_reduction="group_max")[0, 0]
    products = torch.einsum("hd,nsd->hns", query[0], keys[:, 0])
    assert torch.all(bounds >= products.amax(dim=(0, 2)))


def test_ids_beyond_the_pool_are_not_read(device: torch.device) -> None:
    digest = torch.ones(3, 1, 8, device=device)
    table = torch.tensor([[0, 3, 2**30]], dtype=torch.int32, device=device)
    scores = block_score(torch.ones(1, 1, 8, device=device), digest, digest, table)
    assert scores.flatten().tolist() == [8.0, float("-inf"), float("-inf")]
