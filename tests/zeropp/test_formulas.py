"""The closed formulas against the simulation: they agree wherever they claim to hold, and hold often."""

from collections import Counter
from typing import Any

import pytest

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.lowering import add_parameters
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate
from dtk.zeropp.formulas import FormulaCheck, check_formulas

TIMES = [(1, 1, 1), (2, 2, 1), (4, 6, 3), (2, 3, 5)]
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "zeropp": [{"unit": unit, "split": split} for unit in (1, 2, 3, 4, 6, 8) for split in (True, False)],
    "interleaved": [{}, {"group_size": 4}, {"group_size": 6}],
}


def checks(schedule: Schedule, times: tuple[int, int, int], **others: int) -> dict[str, FormulaCheck]:
    forward, input_grad, weight_grad = times
    costs = StageCosts.of(
        schedule.num_stages,
        forward_ns=forward,
        input_grad_ns=input_grad,
        weight_grad_ns=weight_grad,
        **others,
    )
    resident = 2 if schedule.name == "dualpipe-v" else 1
    lowered = add_parameters(schedule, resident_chunks=resident)
    found = check_formulas(lowered, costs, simulate(lowered, costs), resident_chunks=resident)
    return {check.quantity: check for check in found}


@pytest.mark.parametrize("name", SCHEDULES)
def test_formulas_agree_wherever_they_hold(name: str) -> None:
    found: Counter[str] = Counter()
    for ranks in (1, 2, 3, 4):
        for chunks in (1, 2, 3):
            for microbatches in (1, 2, 4, 6, 8, 9, 12):
                for options in OPTIONS.get(name, [{}]):
                    if not SCHEDULES[name].takes(chunks) or options.get("group_size", ranks) < ranks:
                        continue
                    schedule = make_schedule(
                        name, num_ranks=ranks, num_chunks=chunks, num_microbatches=microbatches, **options
                    )
                    for times in TIMES:
                        for quantity, check in checks(schedule, times).items():
                            assert check.agrees, (ranks, chunks, microbatches, options, times, check)
                            found[quantity] += 1
    assert min(found["idle_ns"], found["peak_activation_chunks"]) >= 4
    assert (found["gathers"] > 0) == (name == "zeropp")


def test_a_formula_says_what_it_says() -> None:
    schedule = make_schedule("zeropp", num_ranks=4, num_chunks=4, num_microbatches=16, unit=4)
    found = checks(schedule, (5, 5, 5))
    assert {name: (check.expected, check.formula) for name, check in found.items()} == {
        "idle_ns": (60, "P-1 + (n-1)(2P-1-U) slots, n units"),
        "peak_activation_chunks": (16, "min(U V, (V-1)U + 2P)"),
        "gathers": (25, "2V-1 + (n-1)(2V-2), n units"),
    }


def test_a_wrong_formula_would_be_told() -> None:
    assert not FormulaCheck("idle_ns", "P", 3, 4).agrees


@pytest.mark.parametrize("cost", ["activation_transfer_ns", "unshard_ns", "reduce_grad_ns", "optimizer_ns"])
def test_no_formula_for_idle_time_with_other_costs(cost: str) -> None:
    schedule = make_schedule("1f1b", num_ranks=3, num_chunks=1, num_microbatches=4)
    assert checks(schedule, (1, 1, 1)).keys() == {"idle_ns", "peak_activation_chunks"}
    assert checks(schedule, (1, 1, 1), **{cost: 1}).keys() == {"peak_activation_chunks"}


def test_no_formula_for_unequal_stages() -> None:
    schedule = make_schedule("1f1b", num_ranks=2, num_chunks=1, num_microbatches=4)
    costs = StageCosts.of(2, forward_ns=[1, 2], input_grad_ns=1, weight_grad_ns=1)
    assert check_formulas(schedule, costs, simulate(schedule, costs)) == ()
