"""Cutting a model anew: nothing is lost, merged stages are sums, messages stay those of their places."""

from dataclasses import fields
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.costs import StageCosts
from dtk.zeropp.recutting import recut

MESSAGES = {"activation_transfer_ns", "gradient_transfer_ns", "activation_message_bytes"}


def costs_of(forward: list[int]) -> StageCosts:
    count = len(forward)
    return StageCosts.of(
        count,
        forward_ns=forward,
        input_grad_ns=[7 * value for value in forward],
        weight_grad_ns=1,
        activation_transfer_ns=range(count),
        gradient_transfer_ns=range(100, 100 + count),
    )


def test_stages_are_joined() -> None:
    joined = recut(costs_of([1, 2, 3, 4, 5, 6]), 2)
    assert joined.forward_ns == (6, 15)
    assert joined.weight_grad_ns == (3, 3)
    assert joined.activation_transfer_ns == (2, 5)
    assert joined.gradient_transfer_ns == (100, 103)


def test_stages_are_cut() -> None:
    cut = recut(costs_of([4, 7]), 4)
    assert cut.forward_ns == (2, 2, 3, 4)
    assert cut.activation_transfer_ns == (0, 0, 1, 1)
    assert cut.gradient_transfer_ns == (100, 100, 101, 101)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_the_same_number_changes_nothing(count: int) -> None:
    costs = costs_of(list(range(1, count + 1)))
    assert recut(costs, count) == costs


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=12), st.integers(1, 30))
def test_parts_are_whole_fair_and_lose_nothing(forward: list[int], num_stages: int) -> None:
    cut = recut(costs_of(forward), num_stages)
    for name in {each.name for each in fields(StageCosts)} - MESSAGES:
        assert sum(getattr(cut, name)) == sum(getattr(costs_of(forward), name))
    width = Fraction(len(forward), num_stages)
    for stage, found in enumerate(cut.forward_ns):
        # Slowly, piece by piece: how much of each old stage lies in the new one.
        start, end = stage * width, (stage + 1) * width
        exact = Fraction()
        for old, value in enumerate(forward):
            overlap = min(end, Fraction(old + 1)) - max(start, Fraction(old))
            exact += max(overlap, Fraction()) * value
        assert abs(found - exact) < 1
