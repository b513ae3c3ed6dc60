import random

import pytest

from dtk.errors import InputError
from dtk.pipeline.action import Kind
from dtk.pipeline.iteration.estimate import estimate
from dtk.zeropp.planning.candidate import Candidate
from dtk.zeropp.planning.evaluation import Evaluator, forwards_first
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import PlanProblem
from tests.zeropp.planning.problems import small_problem


def _sample(problem: PlanProblem, method: str, count: int) -> list[Candidate]:
    space = list(METHODS[method].space(problem))
    return random.Random(7).sample(space, min(count, len(space)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "problem",
    [
        small_problem(),
        small_problem("gpt2", "8xA800-200Gbx2", global_batch=32, stack="megatron-overlapped"),
        small_problem("gpt3-125m", global_batch=24, sequence_tokens=256, flash_attention=False),
        small_problem("gpt3-125m", "DGX-A100x2", global_batch=32, stack="torch-fsdp2"),
    ],
    ids=["node", "nodes", "scores", "slowed"],
)
def test_bounds_are_true(problem: PlanProblem, method: str) -> None:
    for candidate in _sample(problem, method, 40):
        evaluator = Evaluator(problem)
        least_ns = evaluator.compute_bound_ns(candidate)
        bound_ns, bound_bytes = evaluator.bounds(candidate)
        try:
            evaluated = evaluator.evaluate(candidate)
        except InputError:
            continue
        assert 0 < least_ns <= bound_ns <= evaluated.estimate.simulation.makespan_ns
        assert 0 < bound_bytes <= evaluated.estimate.peak_bytes


@pytest.mark.parametrize("method", METHODS)
def test_what_is_shared_changes_nothing(method: str) -> None:
    problem = small_problem()
    evaluator = Evaluator(problem)
    for candidate in _sample(problem, method, 10):
        evaluated = evaluator.evaluate(candidate).estimate
        alone = estimate(candidate.run(problem))
        assert (evaluated.iteration_s, evaluated.memory) == (alone.iteration_s, alone.memory)


def test_a_twin_with_another_optimizer_is_known_without_a_simulation() -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32)
    space = [each for each in METHODS["zeropp"].space(problem) if each.hybrid]
    first = next(each for each in space if each.hybrid == "zero3-dp")
    twin = next(
        each
        for each in space
        if each.hybrid == "zero3-zero1"
        and (each.schedule, each.family, each.keep_last_chunk, each.replicas_outermost)
        == (first.schedule, first.family, first.keep_last_chunk, first.replicas_outermost)
    )
    evaluator = Evaluator(problem)
    evaluator.evaluate(first)
    bound_ns, _ = evaluator.bounds(twin)
    assert bound_ns == evaluator.evaluate(twin).estimate.simulation.makespan_ns


@pytest.mark.parametrize("method", METHODS)
def test_the_forwards_before_the_first_backward(method: str) -> None:
    problem = small_problem()
    for candidate in _sample(problem, method, 15):
        evaluated = Evaluator(problem).evaluate(candidate)
        run, schedule = evaluated.estimate.run, evaluated.estimate.schedule
        claimed = forwards_first(candidate, run.num_microbatches)
        if not claimed:
            continue
        listed = [0] * candidate.chunks
        for action in schedule.compute_only().actions[0]:
            if action.kind is not Kind.FORWARD:
                break
            listed[action.stage // candidate.pipeline_parallel] += 1
        assert list(claimed) == listed
