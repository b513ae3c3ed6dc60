"""The search against optima that an exact solver proved: recorded ones, and a few proved anew."""

import pytest

from dtk.pipeline.bounds import makespan_bound
from dtk.pipeline.optimal import cp_sat
from dtk.pipeline.optimal.optimise import DEFAULT_EFFORT, optimise
from dtk.pipeline.optimal.orders import order_of, peak_memory
from dtk.pipeline.optimal.search import makespan_of, search
from dtk.pipeline.simulate import simulate
from tests.pipeline.optimal.cases import problem_of, recorded_optima

RECORDED = recorded_optima()


def test_at_least_200_cases_are_recorded_and_many_are_out_of_the_bounds_reach() -> None:
    assert len(RECORDED) >= 200
    loose = 0
    for seed, optimum in RECORDED.items():
        problem = problem_of(seed)
        bound = makespan_bound(
            problem.rank_of_stage, problem.num_microbatches, problem.costs, problem.memory_limit
        )
        assert bound <= optimum, f"seed {seed}: the bound {bound} is above the optimum {optimum}"
        loose += bound < optimum
    assert loose >= 20  # so the search is tested where nothing tells it that it may stop


@pytest.mark.native
@pytest.mark.parametrize("tens", range(0, 300, 10))
def test_the_search_reaches_every_proven_optimum_and_never_beats_one(tens: int) -> None:
    for seed in range(tens, tens + 10):
        if seed not in RECORDED:
            continue
        problem = problem_of(seed)
        # Told the optimum, it stops there; without, it goes on to its last evaluation. It cannot end below.
        found = search(
            problem,
            lower_bound_ns=RECORDED[seed],
            max_evaluations=4 * DEFAULT_EFFORT // problem.num_tasks,
            seed=0,
        )
        assert found.makespan_ns == RECORDED[seed], f"seed {seed}"
        assert makespan_of(problem, found.order) == found.makespan_ns
        held = peak_memory(problem, found.order)
        assert all(peak <= limit for peak, limit in zip(held, problem.memory_limit, strict=True))


@pytest.mark.native
@pytest.mark.parametrize("seed", [seed for seed in RECORDED if problem_of(seed).num_tasks <= 40][:25])
def test_the_recorded_optima_are_what_the_solver_proves_now(seed: int) -> None:
    pytest.importorskip("ortools")
    problem = problem_of(seed)
    answer = cp_sat.solve(problem, time_limit_s=60)
    assert answer.proven
    assert answer.lower_bound_ns == RECORDED[seed]
    assert answer.order is not None
    assert makespan_of(problem, answer.order) == RECORDED[seed]


@pytest.mark.native
@pytest.mark.parametrize("seed", list(RECORDED)[:20])
def test_the_simulator_agrees_about_time_and_memory(seed: int) -> None:
    problem = problem_of(seed)
    found = optimise(problem, effort=200_000)
    simulated = simulate(found.schedule, problem.costs, engine="python")
    assert simulated.makespan_ns == found.makespan_ns
    assert simulated.peak_bytes_by_kind  # activations and what weight gradients wait with
    assert order_of(found.schedule) is not None
