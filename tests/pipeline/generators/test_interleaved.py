"""Interleaved 1F1B's groups, warm-up and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.pipeline.action import Kind
from dtk.pipeline.generators.interleaved import interleaved, split_into_groups


@pytest.mark.parametrize(
    ("num_ranks", "num_microbatches", "group_size", "groups"),
    [
        (4, 8, 4, [4, 4]),
        (4, 10, 4, [5, 5]),  # 4, 4 and 2 could deadlock
        (4, 11, 4, [6, 5]),
        (4, 3, 4, [3]),
        (4, 16, 8, [8, 8]),
        (4, 13, 8, [7, 6]),
        (4, 9, 8, [5, 4]),
        (5, 9, 8, [9]),
        (4, 7, 100, [7]),
    ],
)
def test_groups(num_ranks: int, num_microbatches: int, group_size: int, groups: list[int]) -> None:
    assert split_into_groups(num_ranks, num_microbatches, group_size) == groups


@given(st.integers(1, 16), st.integers(1, 200), st.integers(0, 40))
def test_groups_hold_all_micro_batches_and_fill_the_pipeline(
    num_ranks: int, num_microbatches: int, beyond: int
) -> None:
    groups = split_into_groups(num_ranks, num_microbatches, num_ranks + beyond)
    assert sum(groups) == num_microbatches
    assert min(groups) >= min(num_ranks, num_microbatches)
    assert groups[0] - groups[-1] in (0, 1)


def test_order_of_the_first_rank() -> None:
    row = " ".join(map(str, interleaved(2, 2, 4).actions[0]))
    assert row == "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"


@pytest.mark.parametrize(("group_size", "alive"), [(4, 19), (8, 31)])
def test_published_activation_peak(group_size: int, alive: int) -> None:
    row = interleaved(4, 4, 16, group_size=group_size).actions[0]
    now = [1 if action.kind is Kind.FORWARD else -1 for action in row]
    assert max(sum(now[:end]) for end in range(len(now))) == alive


@pytest.mark.parametrize("group_size", [0, -1, 3])
def test_a_group_must_fill_the_pipeline(group_size: int) -> None:
    with pytest.raises(InputError, match="group_size"):
        interleaved(4, 2, 8, group_size=group_size)
