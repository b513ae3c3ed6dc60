"""Where ranks lie, against a mesh of all ranks laid out node after node."""

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from dtk.costmodel.placement import RankGroup, place_group
from tests.costmodel.machines import machine_of_figures


def slowest_of_all(chips: int, num_chips: int, num_ranks: int, stride: int) -> RankGroup:
    """Every group that there is: the fewest ranks on a node, the most groups on one, the most nodes."""
    mesh = np.arange(num_chips).reshape(-1, num_ranks, stride) // chips
    groups = [np.unique(nodes, return_counts=True) for block in mesh for nodes in block.T]
    leaving = [group for group in groups if len(group[0]) > 1] or groups
    counts = np.bincount(np.concatenate([nodes for nodes, _ in leaving]))
    fewest = min(per_node.min() for _, per_node in leaving)
    most = max(len(nodes) for nodes, _ in leaving)
    beside = any(per_node.max() > 1 for _, per_node in groups)
    return RankGroup(num_ranks, int(fewest), int(counts.max()), most, beside and most == num_ranks)


@hypothesis.given(st.integers(1, 16), st.integers(2, 90), st.integers(1, 40), st.integers(1, 2))
@hypothesis.example(8, 64, 5, 1)
@hypothesis.example(12, 3, 5, 1)
def test_against_all_groups_of_all_ranks(chips: int, num_ranks: int, stride: int, times: int) -> None:
    num_chips = math.lcm(chips, num_ranks * stride) * times
    hypothesis.assume(num_chips <= 20_000)
    machine = machine_of_figures(chips_per_node=chips, num_nodes=num_chips // chips)
    assert place_group(machine, num_ranks, stride) == slowest_of_all(chips, num_chips, num_ranks, stride)


@pytest.mark.parametrize(
    ("chips", "num_ranks", "stride", "expected"),
    [
        (8, 8, 1, RankGroup(8, 8, 1, 1)),
        (8, 4, 1, RankGroup(4, 4, 2, 1)),
        (8, 2, 4, RankGroup(2, 2, 4, 1)),
        (8, 16, 1, RankGroup(16, 8, 1, 2)),
        (8, 8, 8, RankGroup(8, 1, 8, 8)),
        (8, 8, 4, RankGroup(8, 2, 4, 4)),
        (8, 4, 64, RankGroup(4, 1, 8, 4)),
        (1, 4, 1, RankGroup(4, 1, 1, 4)),
        # Three ranks beside each other on nodes of eight: 6, 7 | 8 and 15 | 16, 17 leave their nodes.
        (8, 3, 1, RankGroup(3, 1, 2, 2)),
        # 0, 1 stay, 2 | 3 leave, 4, 5 stay.
        (3, 2, 1, RankGroup(2, 1, 1, 2, others_inside=True)),
        # 0 to 7 stay, 8 to 11 | 12 to 15 leave.
        (12, 8, 1, RankGroup(8, 4, 1, 2)),
        # 0, 6 | 12 | 18 to 2 | 8, 14 | 20, with 6 and 7 of the same groups as 0 and 1, and so on.
        (8, 4, 6, RankGroup(4, 1, 6, 3)),
    ],
)
def test_by_hand(chips: int, num_ranks: int, stride: int, expected: RankGroup) -> None:
    machine = machine_of_figures(chips_per_node=chips, num_nodes=512)
    assert place_group(machine, num_ranks, stride) == expected


@pytest.mark.parametrize("chips", [1, 3, 8, 12, 16, 72])
@pytest.mark.parametrize("sizes", [(2**40, 1), (2**30 + 1, 3), (3 * 2**20, 5), (7, 2**40), (1, 2**40)])
def test_any_size_ends_at_once(chips: int, sizes: tuple[int, int]) -> None:
    num_ranks, stride = sizes
    group = place_group(machine_of_figures(chips_per_node=chips, num_nodes=2**40), num_ranks, stride)
    assert group.num_ranks == num_ranks
    assert num_ranks <= group.num_nodes * chips
    assert group.ranks_per_node <= -(-num_ranks // group.num_nodes)


@hypothesis.given(st.integers(1, 16), st.integers(1, 64), st.integers(1, 16))
def test_groups_do_not_get_more_than_the_node(chips: int, num_ranks: int, stride: int) -> None:
    group = place_group(machine_of_figures(chips_per_node=chips, num_nodes=64), num_ranks, stride)
    assert 1 <= group.ranks_per_node <= chips
    assert group.groups_per_node * group.ranks_per_node <= chips
