"""Sparse decode attention against dense softmax in float64, and against torch's own attention."""

import pytest
import torch
from hypothesis import given, settings

from dtk_kernels.attention import merge_partials, sparse_decode_attention
from tests.kernels.attention.cases import AttentionCase, attention_cases
from tests.kernels.attention.oracles import dense_attention
from tests.kernels.implementations import BOTH, DIRECT


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=60)
@given(case=attention_cases())
def test_equals_dense_softmax_over_the_listed_tokens(case: AttentionCase, implementation: str | None) -> None:
    output, lse = sparse_decode_attention(*case.arguments(), scale=case.scale, implementation=implementation)
    expected_output, expected_lse = dense_attention(*case.arguments(), scale=case.scale)
    assert output.dtype == lse.dtype == torch.float32
    torch.testing.assert_close(output.double(), expected_output, **case.tolerance())
    torch.testing.assert_close(lse.double(), expected_lse, **case.tolerance())


@pytest.mark.parametrize("implementation", DIRECT)
def test_listing_every_block_is_torch_attention(implementation: str) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 6, 24, generator=generator)
    keys = torch.randn(10, 3, 4, 24, generator=generator)
    values = torch.randn(10, 3, 4, 24, generator=generator)
    table = torch.randperm(10, generator=generator).int().reshape(2, 1, 5)
    lengths = torch.full_like(table, 4)
    output, _ = sparse_decode_attention(query, keys, values, table, lengths, implementation=implementation)
    dense = [pool[table[:, 0].long()].transpose(1, 2).reshape(2, 3, 20, 24) for pool in (keys, values)]
    expected = torch.nn.functional.scaled_dot_product_attention(query[:, :, None], *dense, enable_gqa=True)
    torch.testing.assert_close(output, expected[:, :, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("implementation", DIRECT)
def test_an_empty_selection_gives_zero_and_minus_infinity(implementation: str) -> None:
    pool = torch.full((3, 2, 4, 8), float("nan"))
    query = torch.full((2, 4, 8), float("inf"))
    for table, lengths in (
        (torch.full((2, 1, 3), -1), torch.full((2, 1, 3), 4)),
        (torch.zeros((2, 2, 3)), torch.zeros((2, 2, 3))),
        (torch.zeros((2, 1, 0)), torch.zeros((2, 1, 0))),
    ):
        output, lse = sparse_decode_attention(
            query, pool, pool, table.int(), lengths.int(), implementation=implementation
        )
        assert torch.equal(output, torch.zeros(2, 4, 8))
        assert torch.equal(lse, torch.full((2, 4), float("-inf")))


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("pool_shape", [(0, 2, 4, 8), (3, 2, 4, 8)])
def test_no_sequence_and_no_pool_block(implementation: str, pool_shape: tuple[int, ...]) -> None:
    pool, none = torch.ones(pool_shape), torch.full((0, 1, 2), -1, dtype=torch.int32)
    output, lse = sparse_decode_attention(
        torch.ones(0, 4, 8), pool, pool, none, none, implementation=implementation
    )
    assert output.shape == (0, 4, 8)
    assert lse.shape == (0, 4)


@pytest.mark.parametrize("implementation", DIRECT)
def test_one_token_returns_its_value_and_its_score(implementation: str) -> None:
    keys = torch.arange(8.0).reshape(1, 1, 1, 8)
    query = torch.ones(1, 1, 8)
    one = torch.tensor([[[1]]], dtype=torch.int32)
    output, lse = sparse_decode_attention(
        query, keys, keys + 3, one - 1, one, scale=0.5, implementation=implementation
    )
    torch.testing.assert_close(output[0, 0], keys[0, 0, 0] + 3)
    assert lse.item() == pytest.approx(28 * 0.5)


@pytest.mark.parametrize("implementation", DIRECT)
@settings(max_examples=20)
@given(case=attention_cases())
def test_parts_of_the_list_merge_into_the_whole(case: AttentionCase, implementation: str) -> None:
    parts = []
    for keep in (slice(0, 1), slice(1, None)):
        table = torch.full_like(case.block_table, -1)
        table[..., keep] = case.block_table[..., keep]
        parts.append(
            sparse_decode_attention(
                case.query, case.keys, case.values, table, case.block_lengths, scale=case.scale,
                implementation=implementation,
            )
        )  # fmt: skip
    merged = merge_partials(*(torch.stack(tensors) for tensors in zip(*parts, strict=True)))
    whole = sparse_decode_attention(*case.arguments(), scale=case.scale, implementation=implementation)
    torch.testing.assert_close(merged, whole, **case.tolerance())


@pytest.mark.parametrize("implementation", DIRECT)
def test_scores_far_apart_neither_overflow_nor_vanish(implementation: str) -> None:
    keys = torch.tensor([-3e4, 3e4, 0.0, 2.9e4]).reshape(4, 1, 1, 1).expand(4, 1, 1, 8).contiguous()
    values = torch.arange(4.0).reshape(4, 1, 1, 1).expand(4, 1, 1, 8).contiguous()
    query = torch.full((1, 1, 8), 100.0)
    table = torch.arange(4, dtype=torch.int32).reshape(1, 1, 4)
    output, lse = sparse_decode_attention(
        query, keys, values, table, torch.ones_like(table), implementation=implementation
    )
    assert torch.equal(output, torch.ones(1, 1, 8))
    torch.testing.assert_close(lse.item(), 8 * 100 * 3e4 / 8**0.5, rtol=1e-6, atol=0.0)
