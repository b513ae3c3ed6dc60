"""Merge of partial results against one softmax in float64 over all tokens."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import merge_partials
from tests.kernels.implementations import BOTH, DIRECT


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_partials=st.integers(1, 5),
    num_tokens=st.integers(0, 12),
    head_dim=st.integers(1, 70),
    spread=st.sampled_from([0.1, 3.0, 300.0]),
)
def test_any_split_merges_into_one_softmax(
    seed: int, num_partials: int, num_tokens: int, head_dim: int, spread: float, implementation: str | None
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn((2, 3, num_tokens), generator=generator, dtype=torch.float64) * spread
    values = torch.randn((2, 3, num_tokens, head_dim), generator=generator, dtype=torch.float64)
    owner = torch.randint(0, num_partials, (2, 3, num_tokens), generator=generator)
    parts = [_softmax(scores.masked_fill(owner != part, -math.inf), values) for part in range(num_partials)]
    outputs, lses = (torch.stack(tensors).float() for tensors in zip(*parts, strict=True))
    outputs = outputs.masked_fill(lses[..., None] == -math.inf, math.nan)  # garbage of an empty partial
    output, lse = merge_partials(outputs, lses, implementation=implementation)
    expected_output, expected_lse = _softmax(scores, values)
    # The partials' own rounding to float32 moves weights by about 1e-7 * |lse|.
    torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=3e-7 * max(spread * 4, 10))
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-6, atol=1e-5)


def _softmax(scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None]).exp()
    return (weights[..., None] * values).sum(dim=-2), lse


@pytest.mark.parametrize("implementation", DIRECT)
def test_the_logarithm_is_the_natural_one(implementation: str) -> None:
    outputs = torch.tensor([[[1.0]], [[5.0]]])
    lses = torch.tensor([[0.0], [math.log(3.0)]])
    output, lse = merge_partials(outputs, lses, implementation=implementation)
    assert output.item() == pytest.approx(4.0)  # weights 1/4 and 3/4; a base-2 reading gives 3.7
    assert lse.item() == pytest.approx(math.log(4.0))


@pytest.mark.parametrize("implementation", DIRECT)
def test_equal_partials_give_their_mean(implementation: str) -> None:
    outputs = torch.randn((4, 3, 5), generator=torch.Generator().manual_seed(1))
    output, lse = merge_partials(outputs, torch.full((4, 3), -7.0), implementation=implementation)
    torch.testing.assert_close(output, outputs.mean(dim=0))
    torch.testing.assert_close(lse, torch.full((3,), -7.0 + math.log(4.0)))


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("gap", [200.0, 1e5, 3e38])
def test_huge_gaps_leave_the_larger_one(implementation: str, gap: float) -> None:
    outputs = torch.tensor([[[2.0, 3.0]], [[-1.0, 8.0]]])
    output, lse = merge_partials(outputs, torch.tensor([[-gap], [gap]]), implementation=implementation)
    assert torch.equal(output, outputs[1])
    assert lse.item() == torch.tensor(gap).item()


@pytest.mark.parametrize("implementation", DIRECT)
def test_all_empty_is_empty_whatever_the_outputs_hold(implementation: str) -> None:
    outputs = torch.tensor([math.nan, math.inf]).reshape(2, 1, 1).expand(2, 3, 4)
    output, lse = merge_partials(outputs, torch.full((2, 3), -math.inf), implementation=implementation)
    assert torch.equal(output, torch.zeros(3, 4))
    assert torch.equal(lse, torch.full((3,), -math.inf))


@pytest.mark.parametrize("implementation", DIRECT)
def test_strides_leading_dims_and_no_rows(implementation: str) -> None:
    generator = torch.Generator().manual_seed(2)
    outputs = torch.randn((5, 2, 3, 4), generator=generator).transpose(0, 1)
    lses = torch.randn((5, 2, 3), generator=generator).transpose(0, 1)
    output, lse = merge_partials(outputs, lses, implementation=implementation)
    weights = lses.softmax(dim=0)
    torch.testing.assert_close(output, (weights[..., None] * outputs).sum(dim=0))
    torch.testing.assert_close(lse, lses.logsumexp(dim=0))
    single, single_lse = merge_partials(outputs[:, 0, 0], lses[:, 0, 0], implementation=implementation)
    torch.testing.assert_close((single, single_lse), (output[0, 0], lse[0, 0]))
    none, _ = merge_partials(outputs[:, :0], lses[:, :0], implementation=implementation)
    assert none.shape == (0, 3, 4)
