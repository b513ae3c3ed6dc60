"""Collectives and messages against rings played out step by step, and what must hold on any machine."""

import math
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.costmodel.collectives import Collective
from dtk.costmodel.machine import Machine
from dtk.costmodel.placement import RankGroup, place_group
from tests.costmodel.machines import (
    LATENCIES,
    RATES,
    communication_of,
    constants_of,
    machine_of_figures,
    machines,
    slower,
    stack_of,
    stacks,
)
from tests.costmodel.ring import Rings

KINDS: list[Collective] = ["all_reduce", "all_gather", "reduce_scatter"]
collectives = st.sampled_from(KINDS)
positions = st.tuples(st.integers(1, 64), st.integers(1, 64))


def seconds(machine: Machine, kind: Collective, size: float, num_ranks: int, stride: int) -> float:
    return communication_of(machine).collective_s(kind, size, place_group(machine, num_ranks, stride))


def without_latency(machine: Machine) -> Machine:
    return replace(machine, **dict.fromkeys(LATENCIES, 0.0))


@st.composite
def even_groups(draw: st.DrawFn) -> tuple[Machine, int, int]:
    """A machine and groups that its nodes cut evenly: in a node, or as many ranks on each of its nodes."""
    machine = without_latency(draw(machines()))
    chips = machine.chips_per_node
    divisors = [each for each in range(1, chips + 1) if chips % each == 0]
    stride = draw(st.sampled_from(divisors))
    if draw(st.booleans()):
        num_ranks = draw(st.sampled_from([each for each in divisors if chips // stride % each == 0]))
    else:
        num_ranks = (
            chips // stride * draw(st.sampled_from([n for n in (1, 2, 4) if machine.num_nodes % n == 0]))
        )
    return machine, num_ranks, stride


@hypothesis.given(even_groups(), collectives, st.floats(1, 1e12))
def test_rings_over_even_groups(groups: tuple[Machine, int, int], kind: Collective, size: float) -> None:
    machine, num_ranks, stride = groups
    # A switch inside: meshes follow.
    machine = replace(machine, pair_bytes_per_s=machine.fabric_bytes_per_s)
    played = Rings(machine, num_ranks, stride).seconds(kind, size) if num_ranks > 1 else 0.0
    model = seconds(machine, kind, size, num_ranks, stride)
    group = place_group(machine, num_ranks, stride)
    # Where several rings leave a node, each rank is in one of them the one that sends outside; the model has
    # it send all its bytes inside as well.
    idle = 1 - 1 / group.ranks_per_node if group.num_nodes > 1 and group.ranks_per_node > 1 else 1
    assert played <= model * (1 + 1e-9)
    assert model <= played / idle * (1 + 1e-9)


@pytest.mark.parametrize("chips", [2, 3, 5, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mesh_uses_all_its_links(chips: int, kind: Collective) -> None:
    rates = {"fabric_bytes_per_s": 10.0 * (chips - 1), "pair_bytes_per_s": 10.0}
    machine = machine_of_figures(chips_per_node=chips, **rates)
    played = Rings(machine, chips, 1).seconds(kind, 1e3)
    assert seconds(machine, kind, 1e3, chips, 1) == pytest.approx(played)


def test_a_pair_in_a_mesh_has_one_link() -> None:
    machine = machine_of_figures(chips_per_node=8, fabric_bytes_per_s=70.0, pair_bytes_per_s=10.0)
    assert seconds(machine, "all_gather", 100, 2, 1) == pytest.approx(5.0)


@hypothesis.given(machines(), positions, collectives)
def test_groups_that_straddle_nodes_are_never_too_fast(
    machine: Machine, position: tuple[int, int], kind: Collective
) -> None:
    num_ranks, stride = position
    num_chips = math.lcm(machine.chips_per_node, num_ranks * stride)
    hypothesis.assume(num_ranks > 1 and num_chips <= 2000)
    machine = replace(
        without_latency(machine),
        num_nodes=num_chips // machine.chips_per_node,
        pair_bytes_per_s=machine.fabric_bytes_per_s,
    )
    played = Rings(machine, num_ranks, stride).seconds(kind, 1e9)
    assert seconds(machine, kind, 1e9, num_ranks, stride) >= played * (1 - 1e-9)


def test_pairs_that_straddle_nodes_wait_for_those_inside() -> None:
    """Of three pairs on two nodes of three chips one leaves its node, by a NIC faster than the fabric."""
    machine = machine_of_figures(chips_per_node=3, num_nodes=2, fabric_bytes_per_s=5.0, pair_bytes_per_s=5.0)
    machine = replace(machine, network_bytes_per_s=10.0, chip_network_bytes_per_s=10.0)
    assert seconds(machine, "all_gather", 100, 2, 1) == pytest.approx(50 / 5)


def test_by_hand_on_two_nodes() -> None:
    """Eight chips a node, a NIC for each of them."""
    machine = machine_of_figures(
        chips_per_node=8,
        num_nodes=2,
        fabric_bytes_per_s=200.0,
        pair_bytes_per_s=200.0,
        network_bytes_per_s=80.0,
        chip_network_bytes_per_s=10.0,
    )
    # 15/16 of the bytes through eight NICs; both ways for the sum.
    assert seconds(machine, "all_gather", 1600, 16, 1) == pytest.approx(1500 / 80)
    assert seconds(machine, "reduce_scatter", 1600, 16, 1) == pytest.approx(1500 / 80)
    assert seconds(machine, "all_reduce", 1600, 16, 1) == pytest.approx(2 * 1500 / 80)
    # Pairs across the nodes, eight at the same time: half the bytes through one NIC each.
    assert seconds(machine, "all_gather", 1600, 2, 8) == pytest.approx(800 / 10)
    # All chips share one NIC: the eight pairs have an eighth of it each.
    shared = replace(machine, network_bytes_per_s=10.0)
    assert seconds(shared, "all_gather", 1600, 2, 8) == pytest.approx(800 / (10 / 8))
    # One group of all sixteen has it alone.
    assert seconds(shared, "all_gather", 1600, 16, 1) == pytest.approx(1500 / 10)
    # Inside a node nobody uses the NIC, however few ranks (llm-analysis took dp <= 8 for the network).
    assert seconds(shared, "all_gather", 1600, 8, 1) == pytest.approx(1400 / 200)
    assert seconds(shared, "all_gather", 1600, 8, 8) > seconds(shared, "all_gather", 1600, 8, 1)


def test_shares_of_the_rates_are_reached() -> None:
    machine = machine_of_figures(
        chips_per_node=2,
        num_nodes=2,
        network_bytes_per_s=2.0,
        fabric_bytes_per_s=100.0,
        pair_bytes_per_s=100.0,
        constants=constants_of(fabric_share=0.5, network_share=0.25),
    )
    assert seconds(machine, "all_gather", 100, 2, 1) == pytest.approx(50 / (100 * 0.5))
    assert seconds(machine, "all_gather", 100, 2, 2) == pytest.approx(50 / (1 * 0.25))
    transfer_s = communication_of(machine).transfer_s
    assert transfer_s(100, crosses_nodes=False) == pytest.approx(100 / (100 * 0.5))
    assert transfer_s(100, crosses_nodes=True) == pytest.approx(100 / (1 * 0.25))


def test_latencies_by_hand() -> None:
    machine = machine_of_figures(
        chips_per_node=8,
        num_nodes=4,
        fabric_latency_s=3.0,
        network_latency_s=50.0,
        **dict.fromkeys(RATES, math.inf),
    )
    stack = stack_of(collective_s=0.125, transfer_s=0.25)
    communication = communication_of(machine, stack)
    inside, across = place_group(machine, 8, 1), place_group(machine, 32, 1)
    # A tree over eight chips is three deep, over four nodes two; an all-reduce goes up and down.
    assert communication.collective_s("all_gather", 1, inside) == pytest.approx(3 * 3 + 3 * 0.125)
    assert communication.collective_s("all_reduce", 1, inside) == pytest.approx(2 * 9 + 3 * 0.125)
    assert communication.collective_s("all_gather", 1, across) == pytest.approx(100 + 9 + 5 * 0.125)
    assert communication.transfer_s(0, crosses_nodes=False) == pytest.approx(3.25)
    assert communication.transfer_s(0, crosses_nodes=True) == pytest.approx(50.25)


def test_messages_share_the_nics_of_a_node() -> None:
    machine = machine_of_figures(
        chips_per_node=8, num_nodes=2, network_bytes_per_s=40.0, chip_network_bytes_per_s=10.0
    )
    transfer_s = communication_of(machine).transfer_s
    assert transfer_s(100, crosses_nodes=True) == pytest.approx(100 / (40 / 8))
    assert transfer_s(100, crosses_nodes=True, senders_per_node=8) == pytest.approx(100 / (40 / 8))
    # Two alone are limited by the NIC that each has access to.
    assert transfer_s(100, crosses_nodes=True, senders_per_node=2) == pytest.approx(100 / 10)


@hypothesis.given(machines(), stacks(), positions, collectives, st.floats(0, 1e13))
def test_nothing_for_nobody_and_never_less_than_nothing(
    machine: Machine, stack: Any, position: tuple[int, int], kind: Collective, size: float
) -> None:
    communication = communication_of(machine, stack)
    assert communication.collective_s(kind, size, place_group(machine, 1, position[1])) == 0
    assert communication.collective_s(kind, 0, place_group(machine, *position)) == 0
    time_s = communication.collective_s(kind, size, place_group(machine, *position))
    assert math.isfinite(time_s)
    assert time_s >= 0
    assert (time_s > 0) == (position[0] > 1 and size > 0)


@hypothesis.given(machines(), stacks(), positions, st.floats(1, 1e12))
def test_a_sum_is_a_scatter_and_a_gather(
    machine: Machine, stack: Any, position: tuple[int, int], size: float
) -> None:
    communication, group = communication_of(machine, stack), place_group(machine, *position)
    times = {kind: communication.collective_s(kind, size, group) for kind in KINDS}
    assert times["all_gather"] == times["reduce_scatter"]
    # One call starts once.
    once_s = stack.collective_s * math.log2(group.num_ranks)
    assert times["all_reduce"] + once_s == pytest.approx(times["all_gather"] + times["reduce_scatter"])


@hypothesis.given(machines(), stacks(), positions, collectives, st.sampled_from(RATES), st.floats(1, 1e12))
def test_a_slower_link_never_helps(
    machine: Machine, stack: Any, position: tuple[int, int], kind: Collective, rate: str, size: float
) -> None:
    before, after = (communication_of(each, stack) for each in (machine, slower(machine, rate, 2)))
    group = place_group(machine, *position)
    assert after.collective_s(kind, size, group) >= before.collective_s(kind, size, group)
    for crosses in (False, True):
        times = [each.transfer_s(size, crosses_nodes=crosses) for each in (before, after)]
        assert times[1] >= times[0]


@hypothesis.given(machines(), stacks(), positions, collectives, st.floats(1, 1e12))
def test_all_slower_links_always_hurt(
    machine: Machine, stack: Any, position: tuple[int, int], kind: Collective, size: float
) -> None:
    """Astra-sim once gave the same cycles for every topology."""
    hypothesis.assume(position[0] > 1)
    group, slow = place_group(machine, *position), machine
    for rate in RATES:
        slow = slower(slow, rate, 2)
    before, after = (communication_of(each, stack_of()) for each in (machine, slow))
    moved_s = after.collective_s(kind, size, group) - before.collective_s(kind, size, group)
    assert moved_s == pytest.approx(
        communication_of(without_latency(machine)).collective_s(kind, size, group), rel=1e-6
    )


@pytest.mark.parametrize("sizes", [(2, 8), (3, 4), (4, 4), (1, 16), (2, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_like_dimensions_does_not_matter(sizes: tuple[int, int], kind: Collective) -> None:
    """(2, 8) and (8, 2) chips behind like links: the same ring (astra-sim had two answers)."""
    times = set()
    for nodes, chips in (sizes, sizes[::-1]):
        machine = machine_of_figures(
            num_nodes=nodes,
            chips_per_node=chips,
            network_bytes_per_s=7.0 * chips,
            **dict.fromkeys(("fabric_bytes_per_s", "pair_bytes_per_s", "chip_network_bytes_per_s"), 7.0),
            **dict.fromkeys(LATENCIES, 1e-3),
        )
        times.add(round(seconds(machine, kind, 1e3, nodes * chips, 1), 9))
    assert len(times) == 1


@hypothesis.given(machines(), collectives, st.floats(1, 1e12), st.integers(1, 16), st.integers(1, 16))
def test_inside_a_node_the_stride_does_not_matter(
    machine: Machine, kind: Collective, size: float, num_ranks: int, stride: int
) -> None:
    """A group of tp ranks beside each other, and one of dp ranks tp apart, have the same links."""
    block = num_ranks * stride
    hypothesis.assume(block <= 16)
    machine = replace(machine, chips_per_node=block * (16 // block))
    assert seconds(machine, kind, size, num_ranks, stride) == seconds(machine, kind, size, num_ranks, 1)


@hypothesis.given(machines(), collectives, st.floats(1, 1e12), st.floats(1, 1e12), positions)
def test_more_bytes_take_longer(
    machine: Machine, kind: Collective, size: float, more: float, position: tuple[int, int]
) -> None:
    assert seconds(machine, kind, size + more, *position) >= seconds(machine, kind, size, *position)


def test_a_group_is_what_its_numbers_say() -> None:
    machine = machine_of_figures(chips_per_node=4, num_nodes=2, network_bytes_per_s=4.0)
    communication = communication_of(machine)
    alone, sharing = RankGroup(2, 1, 1, 2), RankGroup(2, 1, 4, 2)
    machine_rate = replace(machine, chip_network_bytes_per_s=4.0)
    assert communication_of(machine_rate).ring_bytes_per_s(alone) == 4.0
    assert communication_of(machine_rate).ring_bytes_per_s(sharing) == 1.0
    assert communication.ring_bytes_per_s(alone) == 1.0
