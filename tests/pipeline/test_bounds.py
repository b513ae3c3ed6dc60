import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.pipeline.action import Action, Kind
from dtk.pipeline.bounds import lower_bounds, makespan_bound
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.zb_h1 import zb_h1
from dtk.pipeline.generators.zb_h2 import zb_h2
from dtk.pipeline.generators.zeropp import zeropp
from dtk.pipeline.schedule import loop_placement, v_placement
from dtk.pipeline.simulate import simulate
from tests.pipeline.best_schedule import Search
from tests.pipeline.listed import runnable
from tests.pipeline.random_schedules import random_costs

UNIT = {"forward_ns": 1, "input_grad_ns": 1, "weight_grad_ns": 1}
CHUNKS = {"activation_bytes": 1, "weight_grad_bytes": 1}
TINY = [(1, 1, 3), (2, 1, 2), (3, 1, 2), (2, 2, 1), (1, 2, 2), (3, 1, 1), (4, 1, 1), (1, 3, 1)]  # P, V, M


def tiny_case(seed: int) -> tuple[tuple[int, ...], int, StageCosts, tuple[int, ...] | None]:
    """Placement, micro-batches, costs and memory limit."""
    choose = random.Random(seed)
    num_ranks, num_chunks, num_microbatches = choose.choice(TINY)
    placement = choose.choice([loop_placement, v_placement])(num_ranks, num_chunks)
    largest = choose.choice([1, 3, 9])
    most = dict.fromkeys(UNIT, largest) | {
        "activation_transfer_ns": choose.choice([0, 3]),
        "gradient_transfer_ns": choose.choice([0, 2]),
    }
    values = {name: [choose.randint(0, top) for _ in placement] for name, top in most.items()}
    if choose.random() < 0.5:
        values |= CHUNKS
    else:
        values["activation_bytes"] = [choose.randint(0, 4) for _ in placement]
        values["weight_grad_bytes"] = [choose.randint(0, 4) for _ in placement]
    costs = StageCosts.of(len(placement), **values)
    if choose.random() < 0.3:
        return placement, num_microbatches, costs, None
    needed = [0] * num_ranks
    for stage, rank in enumerate(placement):
        needed[rank] += costs.activation_bytes[stage]
    return placement, num_microbatches, costs, tuple(each + choose.randint(0, 4) for each in needed)


@settings(max_examples=150)
@given(st.integers(0, 10**6), st.booleans())
def test_no_schedule_beats_the_bound(seed: int, fused: bool) -> None:
    placement, num_microbatches, costs, limits = tiny_case(seed)
    best = Search(costs, placement, num_microbatches, limits, fused).run()
    assert makespan_bound(placement, num_microbatches, costs, limits) <= best


def test_the_bound_is_reached_in_most_tiny_cases() -> None:
    reached = 0
    for seed in range(100):
        placement, num_microbatches, costs, limits = tiny_case(seed)
        best = Search(costs, placement, num_microbatches, limits).run()
        bound = makespan_bound(placement, num_microbatches, costs, limits)
        reached += bound == best
    assert reached >= 85


def most_held(row: tuple[Action, ...], costs: StageCosts) -> int:
    """The most a rank holds, along its list: with times of 0 the simulator may see less."""
    held = most = 0
    for part in (part for action in row for part in action.parts):
        full, lesser = costs.activation_bytes[part.stage], costs.weight_grad_bytes[part.stage]
        if part.kind is Kind.FORWARD:
            held += full
        elif part.kind is Kind.INPUT_GRAD:
            held += lesser - full
        else:
            held -= full if part.kind is Kind.FULL_BACKWARD else lesser
        most = max(most, held)
    return most


@given(st.integers(0, 10**6))
def test_no_simulated_schedule_beats_the_bound(seed: int) -> None:
    schedule = runnable(seed)
    costs = replace(
        random_costs(random.Random(seed), schedule.num_stages), optimizer_ns=(0,) * schedule.num_stages
    )
    result = simulate(schedule, costs, engine="python")
    limits = [most_held(row, costs) for row in schedule.actions]
    bound = makespan_bound(schedule.rank_of_stage, schedule.num_microbatches, costs, limits)
    assert bound <= result.makespan_ns


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_zero_bubble_schedules_reach_the_bound(num_ranks: int) -> None:
    costs = StageCosts.of(num_ranks, **UNIT)
    schedule = zb_h2(num_ranks, 3 * num_ranks)
    bound = makespan_bound(schedule.rank_of_stage, schedule.num_microbatches, costs)
    assert simulate(schedule, costs, engine="python").makespan_ns == bound == 10 * num_ranks - 1


@pytest.mark.parametrize("num_ranks", [2, 4, 6])
def test_zeropp_reaches_the_bound_with_large_units(num_ranks: int) -> None:
    costs = StageCosts.of(2 * num_ranks, **UNIT)
    schedule = zeropp(num_ranks, 2, 4 * num_ranks, unit=2 * num_ranks)
    bound = makespan_bound(schedule.rank_of_stage, schedule.num_microbatches, costs)
    assert simulate(schedule, costs, engine="python").makespan_ns == bound


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_zb_h1_is_best_for_its_memory(num_ranks: int) -> None:
    """With P activations on each rank, (P-1)(T_F + T_B - T_W) of idle time cannot be beaten."""
    costs = StageCosts.of(num_ranks, **UNIT, **CHUNKS)
    schedule = zb_h1(num_ranks, 4 * num_ranks)
    result = simulate(schedule, costs, engine="python")
    assert max(result.peak_activation_chunks) == num_ranks
    limits = (num_ranks,) * num_ranks
    bound = makespan_bound(schedule.rank_of_stage, schedule.num_microbatches, costs, limits)
    assert bound == result.makespan_ns == 12 * num_ranks + num_ranks - 1


def test_two_ranks_worked_out_by_hand() -> None:
    costs = StageCosts.of(
        2, forward_ns=[3, 1], input_grad_ns=[2, 4], weight_grad_ns=[1, 5],
        activation_transfer_ns=10, gradient_transfer_ns=20,
    )  # fmt: skip
    bounds = lower_bounds((0, 1), 3, costs)
    # F0 3, transfer 10, F1 1, I1 4, transfer 20, I0 2, W0 1.
    assert bounds.critical_path_ns == 41
    # Activations arrive at 13, 23 and 33 on the one stream, gradients leave at 18, 28 and 38 and arrive one
    # after another at 38, 58 and 78; the last I and W follow.
    assert bounds.rank_ns[0] == bounds.makespan_ns == 78 + 2 + 1
    # Rank 1 can put its last W behind everything, but its F and I are over at 38.
    assert bounds.rank_ns[1] == 81
    assert bounds.memory_ns == (0, 0)


def test_a_tight_limit_counts() -> None:
    costs = StageCosts.of(4, **UNIT, **CHUNKS)
    assert lower_bounds((0, 1, 2, 3), 8, costs).makespan_ns == 8 * 3 + 3
    tight = lower_bounds((0, 1, 2, 3), 8, costs, (1, 1, 1, 1))
    # One micro-batch at a time: four F, four I and a W each.
    assert tight.memory_ns[0] == tight.makespan_ns == 8 * 9


def test_what_weight_gradients_hold_counts_less() -> None:
    costs = StageCosts.of(1, **UNIT, activation_bytes=4, weight_grad_bytes=1)
    # Four bytes over F and I, one over W, in a memory of 4: 9 byte-times of 4 each.
    assert lower_bounds((0,), 8, costs, (4,)).memory_ns == (8 * 9 // 4,)


@pytest.mark.parametrize(
    ("rank_of_stage", "num_microbatches", "limits", "field"),
    [
        ((0, 1), 1, None, "rank_of_stage"),
        ((0, 2, 2), 1, None, "rank_of_stage"),
        ((0, 1, 0), 0, None, "num_microbatches"),
        ((0, 1, 0), 4, (2, 0), "memory_limit"),
        ((0, 1, 0), 4, (2, 1, 1), "memory_limit"),
    ],
)
def test_what_does_not_fit(
    rank_of_stage: tuple[int, ...], num_microbatches: int, limits: tuple[int, ...] | None, field: str
) -> None:
    with pytest.raises(InputError) as error:
        lower_bounds(rank_of_stage, num_microbatches, StageCosts.of(3, **UNIT, **CHUNKS), limits)
    assert error.value.field == field


def test_a_limit_that_nothing_meets_says_what_would_do() -> None:
    with pytest.raises(InputError, match=r"rank 0 needs 2: .* 2 or more"):
        lower_bounds((0, 1, 0), 4, StageCosts.of(3, **UNIT, **CHUNKS), (1, 1))
