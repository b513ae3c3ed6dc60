"""Merge of partial results against the reference in double precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.attention import merge_partials as public
from dtk_kernels.attention.merge_partials.reference import merge_partials as reference
from dtk_kernels.attention.merge_partials.triton_kernel import merge_partials
from tests.kernels.triton import inputs

pytestmark = pytest.mark.interp

RTOL, ATOL = 2e-5, 1e-5


@settings(max_examples=20)
@given(
    num_partials=st.integers(1, 6),
    rows=st.lists(st.integers(0, 5), max_size=2),
    head_dim=inputs.head_dims,
    spread=st.sampled_from((0.1, 10.0, 1e4)),
    empty_share=st.sampled_from((0.0, 0.5, 1.0)),
    seed=inputs.seeds,
)
def test_equals_reference(
    device: torch.device,
    num_partials: int,
    rows: list[int],
    head_dim: int,
    spread: float,
    empty_share: float,
    seed: int,
) -> None:
    source = inputs.generator(seed)
    outputs = inputs.randn((num_partials, *rows, head_dim), source, torch.float32)
    lses = inputs.randn((num_partials, *rows), source, torch.float32) * spread
    empty = torch.rand(lses.shape, generator=source) < empty_share
    outputs[empty], lses[empty] = float("nan"), float("-inf")
    outputs, lses = outputs.to(device), lses.to(device)
    with inputs.poisoned_memory():
        output, lse = merge_partials(outputs, lses)
    expected_output, expected_lse = reference(outputs.double(), lses.double())
    torch.testing.assert_close(output.double(), expected_output, rtol=RTOL, atol=ATOL)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=RTOL, atol=ATOL)


def test_a_broken_partial_stays_visible(device: torch.device) -> None:
    lses = torch.tensor([[0.0], [math.nan]], device=device)
    output, lse = merge_partials(torch.ones(2, 1, 4, device=device), lses)
    assert output.isnan().all()
    assert lse.isnan().all()


@pytest.mark.parametrize("head_dim", [128, 80])
def test_more_partials_than_are_loaded_at_once(device: torch.device, head_dim: int) -> None:
    source = inputs.generator(2)
    outputs = inputs.randn((70, 3, head_dim), source, torch.float32).to(device)
    lses = (inputs.randn((70, 3), source, torch.float32) * 5).to(device)
    lses[:40, 0], lses[:, 1] = -math.inf, torch.linspace(-100, 100, 70, device=device)
    output, lse = merge_partials(outputs, lses)
    expected_output, expected_lse = reference(outputs.double(), lses.double())
    torch.testing.assert_close(output.double(), expected_output, rtol=RTOL, atol=ATOL)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=RTOL, atol=ATOL)


def test_noncontiguous_partials(device: torch.device) -> None:
    source = inputs.generator(1)
    outputs = inputs.randn((3, 8, 2), source, torch.float32).to(device).transpose(0, 2)  # [2, 8, 3]
    lses = inputs.randn((8, 2), source, torch.float32).to(device).transpose(0, 1)
    result = merge_partials(outputs, lses)
    torch.testing.assert_close(result, reference(outputs, lses), rtol=RTOL, atol=ATOL)


def test_the_public_function_finds_the_kernel(device: torch.device) -> None:
    outputs, lses = torch.ones(2, 3, 4, device=device), torch.zeros(2, 3, device=device)
    output, lse = public(outputs, lses, implementation="triton")
    torch.testing.assert_close(output, torch.ones(3, 4, device=device), rtol=RTOL, atol=ATOL)
    torch.testing.assert_close(lse, torch.full((3,), math.log(2.0), device=device), rtol=RTOL, atol=ATOL)
