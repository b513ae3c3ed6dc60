"""Block scores against a head-by-head sum in float64, and against what they bound."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import block_digest, block_score
from dtk_kernels.attention.block_score import HeadReduction
from tests.kernels.attention.cases import DTYPES, head_dims
from tests.kernels.attention.oracles import quest_bounds
from tests.kernels.implementations import BOTH, DIRECT, SUM_TOLERANCE

REDUCTIONS: list[HeadReduction] = ["layer", "group_sum", "group_max"]


@st.composite
def score_cases(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, num_kv_heads, group_size = (draw(st.integers(1, 3)) for _ in range(3))
    group_size = draw(st.integers(1, 16)) if group_size == 3 else group_size
    head_dim, num_pool_blocks = draw(head_dims()), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    keys = torch.randn((num_pool_blocks, num_kv_heads, 3, head_dim), generator=generator).to(draw(DTYPES))
    lengths = torch.randint(0, 4, (num_pool_blocks,), generator=generator, dtype=torch.int32)
    key_min, key_max = block_digest(keys, lengths, implementation="reference")
    if draw(st.booleans()):  # the digests' block dim inside the head dim
        key_min, key_max = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (key_min, key_max))
    query = torch.randn((batch, num_kv_heads * group_size, head_dim + 2), generator=generator)
    query = query.to(draw(DTYPES))[..., 1:-1]
    table_shape = (batch, draw(st.integers(0, 6) | st.integers(7, 40)))
    table = torch.randint(-1, num_pool_blocks, table_shape, generator=generator, dtype=torch.int32)
    return query, key_min, key_max, table


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize("head_reduction", REDUCTIONS)
@settings(max_examples=40)
@given(case=score_cases())
def test_equals_the_sum_head_by_head(
    case: tuple[torch.Tensor, ...], head_reduction: HeadReduction, implementation: str | None
) -> None:
    query, key_min, key_max, table = case
    scores = block_score(
        query, key_min, key_max, table, head_reduction=head_reduction, implementation=implementation
    )
    heads = quest_bounds(query, key_min, key_max, table)
    grouped = heads.unflatten(1, (key_min.shape[1], -1))
    expected = {
        "layer": heads.sum(dim=1, keepdim=True),
        "group_sum": grouped.sum(dim=2),
        "group_max": grouped.amax(dim=2),
    }[head_reduction]
    assert scores.dtype == torch.float32
    assert scores.is_contiguous()
    magnitude = query.shape[1] * query.shape[2]
    torch.testing.assert_close(scores.double(), expected, rtol=3e-5, atol=1e-6 * magnitude)


@pytest.mark.parametrize("implementation", DIRECT)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), head_dim=head_dims())
def test_bounds_every_key_of_its_block(seed: int, head_dim: int, implementation: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn((3, 1, 5, head_dim), generator=generator)
    query = torch.randn((1, 1, head_dim), generator=generator)
    digests = block_digest(keys, torch.full((3,), 5, dtype=torch.int32), implementation=implementation)
    table = torch.arange(3, dtype=torch.int32)[None]
    scores = block_score(query, *digests, table, implementation=implementation)
    highest = (keys[:, 0].double() @ query[0, 0].double()).amax(dim=1)
    assert bool((scores[0, 0].double() >= highest - 1e-4).all())


@pytest.mark.parametrize("implementation", DIRECT)
def test_a_block_of_one_key_scores_its_product(implementation: str) -> None:
    keys = torch.tensor([2.0, -3.0, 0.5]).reshape(1, 1, 1, 3)
    query = torch.tensor([[[1.0, 1.0, -4.0], [-1.0, 0.0, 0.0]]])
    digests = block_digest(keys, torch.ones(1, dtype=torch.int32))
    table = torch.tensor([[0, -1]], dtype=torch.int32)
    for reduction, expected in (("layer", -5.0), ("group_sum", -5.0), ("group_max", -2.0)):
        scores = block_score(query, *digests, table, head_reduction=reduction, implementation=implementation)
        assert scores.tolist() == [[[expected, -math.inf]]]


@pytest.mark.parametrize("implementation", DIRECT)
def test_blocks_that_are_not_listed_do_not_matter(implementation: str) -> None:
    key_min = torch.full((4, 2, 8), math.nan)
    key_max = torch.full((4, 2, 8), math.inf)
    key_min[2], key_max[2] = -1.0, 1.0
    table = torch.tensor([[-1, 2, -1]], dtype=torch.int32)
    scores = block_score(torch.ones(1, 4, 8), key_min, key_max, table, implementation=implementation)
    torch.testing.assert_close(scores, torch.tensor([[[-math.inf, 32.0, -math.inf]]]), **SUM_TOLERANCE)


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("head_reduction", REDUCTIONS)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), head_dim=head_dims(), group_size=st.integers(1, 9), dtype=DTYPES)
def test_infinities_and_nan_are_as_in_the_formula(
    seed: int, head_dim: int, group_size: int, dtype: torch.dtype, head_reduction: HeadReduction,
    implementation: str,
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    digests = torch.randn((2, 7, 2, head_dim), generator=generator)
    query = torch.randn((1, 2 * group_size, head_dim), generator=generator)
    for tensor in (digests, query):
        for special in (math.inf, -math.inf, math.nan, 0.0):
            tensor[torch.rand(tensor.shape, generator=generator) < 0.3 / head_dim] = special
    digests = digests.sort(dim=0).values
    digests[0, 3], digests[1, 3] = math.inf, -math.inf  # an empty block
    key_min, key_max = digests.to(dtype)
    table = torch.arange(-1, 7, dtype=torch.int32)[None]
    scores = block_score(
        query, key_min, key_max, table, head_reduction=head_reduction, implementation=implementation
    )
    grouped = query[0].double().view(2, group_size, 1, head_dim)
    low, high = (x.double().transpose(0, 1)[:, None] for x in (key_min, key_max))
    bounds = torch.maximum(grouped * low, grouped * high).sum(dim=-1)
    empty = (low[..., 0] == math.inf) & (high[..., 0] == -math.inf)
    bounds = bounds.masked_fill(empty, -math.inf)  # [KV heads, group, blocks]
    expected = {
        "layer": bounds.sum(dim=(0, 1))[None],
        "group_sum": bounds.sum(dim=1),
        "group_max": bounds.amax(dim=1),
    }[head_reduction]
    assert bool((scores[0, :, 0] == -math.inf).all())
    tolerance = 1e-6 * head_dim * group_size
    torch.testing.assert_close(scores[0, :, 1:].double(), expected, rtol=3e-5, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("implementation", DIRECT)
def test_queries_whose_sum_overflows_still_score(implementation: str) -> None:
    query = torch.tensor([3e38, 3e38, -3e38, -3e38]).reshape(1, 4, 1).expand(1, 4, 24)
    digest = torch.full((1, 1, 24), 1e-30)
    table = torch.zeros((1, 1), dtype=torch.int32)
    for reduction, expected in (("group_sum", 0.0), ("group_max", 7.2e9)):
        scores = block_score(
            query.contiguous(), digest, digest, table, head_reduction=reduction, implementation=implementation
        )
        torch.testing.assert_close(scores, torch.full((1, 1, 1), expected), rtol=1e-5, atol=2e3)
