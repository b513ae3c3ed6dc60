"""What the scheduler promises: near the bound, never worse than a named schedule that fits, reproducible."""

import os
import random
import signal
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from dtk.errors import InputError, RunFailedError
from dtk.pipeline.bounds import makespan_bound
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.optimal import SchedulingProblem, optimal_schedule, optimise
from dtk.pipeline.optimal.orders import order_of, peak_memory
from dtk.pipeline.schedule import Schedule, loop_placement, v_placement
from dtk.pipeline.simulate import simulate
from dtk.pipeline.text import schedule_from_text
from dtk.pipeline.validate import validate
from tests.pipeline.optimal.cases import problem_of, recorded_optima

pytestmark = pytest.mark.native

# Table 9 of the zero-bubble paper, 14.6B with 128 micro-batches, in nanoseconds.
PROFILE = {"forward_ns": 11_325_000, "input_grad_ns": 11_308_000, "weight_grad_ns": 8_109_000}
TRANSFER = {"activation_transfer_ns": 378_000, "gradient_transfer_ns": 378_000}


@pytest.mark.parametrize("costs", [PROFILE | TRANSFER, dict.fromkeys(PROFILE, 1_000)])
def test_16_ranks_and_64_microbatches_come_within_2_percent_of_the_bound(costs: dict[str, int]) -> None:
    found = optimal_schedule(
        num_ranks=16,
        num_chunks=1,
        num_microbatches=64,
        costs=StageCosts.of(16, **costs),
        memory_chunks=2 * 16,
        effort=10_000_000,
    )
    assert found.lower_bound_ns <= found.makespan_ns <= 1.02 * found.lower_bound_ns
    assert found.gap <= 0.02
    simulated = simulate(found.schedule, StageCosts.of(16, **costs))
    assert simulated.makespan_ns == found.makespan_ns
    assert max(simulated.peak_activation_chunks) <= 32


@pytest.mark.parametrize(
    ("num_ranks", "num_chunks", "num_microbatches"), [(4, 1, 8), (3, 2, 7), (4, 2, 9), (2, 3, 5), (4, 2, 2)]
)
@pytest.mark.parametrize("share", [0.5, 1.0, 2.0])
def test_it_is_never_worse_than_a_named_schedule_that_fits(
    num_ranks: int, num_chunks: int, num_microbatches: int, share: float
) -> None:
    stages = num_ranks * num_chunks
    costs = StageCosts.of(
        stages,
        forward_ns=[100 + 7 * stage for stage in range(stages)],
        input_grad_ns=130,
        weight_grad_ns=[90 - 3 * stage for stage in range(stages)],
        activation_transfer_ns=5,
        gradient_transfer_ns=5,
    )
    memory = max(num_chunks, round(share * stages))
    found = optimal_schedule(
        num_ranks=num_ranks,
        num_chunks=num_chunks,
        num_microbatches=num_microbatches,
        costs=costs,
        memory_chunks=memory,
        effort=2_000_000,
    )
    validate(found.schedule)
    compared = 0
    for name, generator in SCHEDULES.items():
        if not generator.takes(num_chunks):
            continue
        named = simulate(
            make_schedule(
                name, num_ranks=num_ranks, num_chunks=num_chunks, num_microbatches=num_microbatches
            ),
            costs,
        )
        if max(named.peak_activation_chunks) <= memory:
            compared += 1
            assert found.makespan_ns <= named.makespan_ns, name
    assert compared or share < 2.0
    assert max(simulate(found.schedule, costs).peak_activation_chunks) <= memory


def problem(**changes: object) -> SchedulingProblem:
    arguments = {
        "rank_of_stage": loop_placement(3, 2),
        "num_microbatches": 5,
        "costs": StageCosts.of(6, forward_ns=[5, 7, 6, 9, 5, 8], input_grad_ns=9, weight_grad_ns=4),
        "chunks": 5,
    }
    return SchedulingProblem.in_chunks(**(arguments | changes))  # type: ignore[arg-type]


def test_the_seed_alone_decides() -> None:
    rows = [optimise(problem(), effort=3_000_000, seed=seed).schedule.actions for seed in (3, 3, 4)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]  # many schedules are equally short


def test_one_rank_is_busy_all_the_time() -> None:
    costs = StageCosts.of(1, forward_ns=3, input_grad_ns=2, weight_grad_ns=1)
    found = optimise(
        SchedulingProblem.in_chunks(rank_of_stage=(0,), num_microbatches=4, costs=costs, chunks=1)
    )
    assert found.makespan_ns == 24
    assert found.proven
    assert found.gap == 0


def test_times_of_zero_are_fine() -> None:
    costs = StageCosts.of(6, forward_ns=0, input_grad_ns=0, weight_grad_ns=0)
    found = optimise(problem(costs=costs), effort=100_000)
    assert (found.makespan_ns, found.lower_bound_ns, found.gap, found.proven) == (0, 0, 0.0, True)
    validate(found.schedule)


def bound_of(seed: int) -> int:
    one = problem_of(seed)
    return makespan_bound(one.rank_of_stage, one.num_microbatches, one.costs, one.memory_limit)


def test_ctrl_c_keeps_the_best_so_far() -> None:
    hard = problem_of(next(seed for seed, optimum in recorded_optima().items() if bound_of(seed) < optimum))
    interrupt = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    found = optimise(hard, effort=10**13)
    interrupt.join()
    assert found.interrupted
    assert time.monotonic() - began < 60
    validate(found.schedule)
    assert simulate(found.schedule, hard.costs).makespan_ns == found.makespan_ns


@pytest.mark.parametrize("seed", range(12))
def test_the_least_memory_is_enough_and_necessary(seed: int) -> None:
    # Also for bytes that grow at the input gradient: what a W needs may be more than what a forward leaves.
    source = random.Random(seed)
    placement = source.choice([loop_placement, v_placement])(source.randint(1, 3), source.randint(1, 3))
    costs = StageCosts.of(
        len(placement),
        forward_ns=4,
        input_grad_ns=4,
        weight_grad_ns=4,
        activation_bytes=[source.randint(0, 5) for _ in placement],
        weight_grad_bytes=[source.randint(0, 7) for _ in placement],
    )
    ample = (10**6,) * (max(placement) + 1)
    free = SchedulingProblem(rank_of_stage=placement, num_microbatches=4, costs=costs, memory_limit=ample)
    tight = replace(free, memory_limit=free.least_memory)
    found = optimise(tight, effort=300_000)
    assert simulate(found.schedule, costs).peak_bytes == free.least_memory
    for rank, least in enumerate(free.least_memory):
        if least:
            with pytest.raises(InputError, match=f"rank {rank} needs {least} for one micro-batch alone"):
                replace(free, memory_limit=(*ample[:rank], least - 1, *ample[rank + 1 :]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunks": 1}, "memory_limit: rank 0 needs 2 for one micro-batch alone"),
        ({"num_microbatches": 0}, "num_microbatches: must be 1 or more"),
        ({"num_microbatches": 10**6}, "num_microbatches: at most"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        problem(**changes)


@pytest.mark.parametrize(
    ("rank_of_stage", "message"),
    [
        ((0, 2), "rank_of_stage: every rank needs a stage"),
        ((), "rank_of_stage: every rank needs a stage"),
        ((0, 1, 2), "costs: costs of 6 stages for 3 stages"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(rank_of_stage: tuple[int, ...], message: str) -> None:
    costs = problem().costs
    with pytest.raises(InputError, match=message):
        SchedulingProblem(
            rank_of_stage=rank_of_stage, num_microbatches=1, costs=costs, memory_limit=(6, 6, 6)
        )


def test_other_placements_and_no_effort_are_refused() -> None:
    other = Schedule("other", v_placement(3, 2), ((), (), ()), 5)
    with pytest.raises(InputError, match="named: has another placement"):
        optimise(problem(), named=[other])
    with pytest.raises(InputError, match="effort: must be 1 or more"):
        optimise(problem(), effort=0)


@pytest.mark.parametrize(
    ("rows", "num_microbatches", "message"),
    [
        ("0F0,0B0\n1F0,1B0", 2, "named: has 1 micro-batches instead of 2"),
        ("0F0,0B0,0F1\n1F0,1B0,1F1,1B1", 2, "0B1 .* is missing"),
        ("0F0,0F1,0B0,0B1,0B1\n1F0,1B0,1F1,1B1", 2, "repeats 0B1"),
        ("0B0,0F0\n1F0,1B0", 1, "waits for 0F0"),
    ],
)
def test_named_schedules_that_cannot_run_are_refused(rows: str, num_microbatches: int, message: str) -> None:
    costs = StageCosts.of(2, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    asked = problem(rank_of_stage=(0, 1), num_microbatches=num_microbatches, costs=costs, chunks=9)
    with pytest.raises(InputError, match=message):
        optimise(asked, named=[schedule_from_text(rows)])


@pytest.mark.parametrize("changes", [{"seed": -1}, {"seed": 2**31}, {"method": "magic"}])
def test_settings_out_of_range_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"^{min(changes)}: must be "):
        optimise(problem(), **changes)


def test_memory_and_effort_beyond_64_bits_are_as_good_as_unlimited() -> None:
    plenty = problem(chunks=10**6)
    beyond = replace(plenty, memory_limit=(10**30,) * 3)
    assert optimise(beyond, effort=10**5).schedule == optimise(plenty, effort=10**5).schedule
    one = StageCosts.of(1, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    at_the_bound = problem(rank_of_stage=(0,), num_microbatches=1, costs=one, chunks=1)
    assert optimise(at_the_bound, effort=10**40).makespan_ns == 3


def test_orders_and_schedules_are_the_same_thing() -> None:
    schedule = make_schedule("dualpipe-v", num_ranks=3, num_chunks=2, num_microbatches=8)
    order = order_of(schedule)
    assert sorted(task for tasks in order for task in tasks) == list(range(3 * 6 * 8))
    costs = StageCosts.of(6, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    peaks = peak_memory(
        SchedulingProblem.in_chunks(
            rank_of_stage=schedule.rank_of_stage, num_microbatches=8, costs=costs, chunks=99
        ),
        order,
    )
    assert peaks == simulate(schedule, costs).peak_activation_chunks


def test_ctrl_c_ends_the_exact_solver_at_once_and_is_heard_again_later() -> None:
    pytest.importorskip("ortools")
    hard = problem(num_microbatches=60)
    for _ in range(2):
        interrupt = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        began = time.monotonic()
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            optimise(hard, method="exact", time_limit_s=300)
        interrupt.join()
        assert time.monotonic() - began < 100


def test_the_exact_solver_and_the_search_agree() -> None:
    pytest.importorskip("ortools")
    small = problem(num_microbatches=2)
    exact, found = optimise(small, method="exact"), optimise(small)
    assert exact.proven
    assert found.makespan_ns == exact.makespan_ns == simulate(exact.schedule, small.costs).makespan_ns
    validate(exact.schedule)


@pytest.mark.parametrize("ranks", [(0, 1, 1, 0), (0, 1, 0, 1), (0, 0, 1, 1)])
@pytest.mark.parametrize("times", [(0, 0, 0), (1, 0, 0), ((1, 0, 2, 1), 0, (0, 1, 0, 0))])
def test_the_exact_solver_takes_times_of_zero(ranks: tuple[int, ...], times: tuple[Any, ...]) -> None:
    pytest.importorskip("ortools")
    names = ("forward_ns", "input_grad_ns", "weight_grad_ns")
    costs = StageCosts.of(4, **dict(zip(names, times, strict=True)))
    asked = problem(rank_of_stage=ranks, num_microbatches=3, costs=costs, chunks=2)
    exact = optimise(asked, method="exact")
    validate(exact.schedule)
    assert exact.proven
    assert exact.makespan_ns <= optimise(asked, effort=10**5).makespan_ns
    assert max(peak_memory(asked, order_of(exact.schedule))) <= 2


def test_the_exact_solver_says_when_it_found_nothing() -> None:
    pytest.importorskip("ortools")
    with pytest.raises(RunFailedError, match="found no schedule in"):
        optimise(problem(num_microbatches=200), method="exact", time_limit_s=0.001)
