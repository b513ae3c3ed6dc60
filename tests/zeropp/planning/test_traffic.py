"""Counted bytes against the formulas of ZeroPP's paper, ring factors put in."""

from dataclasses import replace

import pytest

from dtk.pipeline.iteration.estimate import Estimate
from dtk.zeropp.planning.candidate import Candidate
from dtk.zeropp.planning.evaluation import Evaluator
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import Pins, PlanProblem
from dtk.zeropp.planning.traffic import Traffic, most_traffic, unit_beats_tensor_parallelism
from tests.zeropp.planning.problems import small_problem


def _first(problem: PlanProblem, method: str, **wanted: object) -> Candidate:
    space = METHODS[method].space(problem)
    return next(each for each in space if all(getattr(each, name) == value for name, value in wanted.items()))


def _evaluate(problem: PlanProblem, candidate: Candidate) -> tuple[Traffic, Estimate]:
    estimate = Evaluator(problem).evaluate(candidate).estimate
    return most_traffic(estimate), estimate


def test_zeropp_gathers_twice_and_reduces_once_a_unit() -> None:
    pins = Pins(pipeline_parallel=2, chunks=3, unit=2, shard_ranks=4, micro_batch=1, resident_chunks=1)
    problem = small_problem(pins=pins)
    traffic, estimate = _evaluate(problem, _first(problem, "zeropp", recomputation="none"))
    own = estimate.schedule.stages_of_rank[0]
    held = [estimate.stages[stage].parameters.per_rank for stage in own]
    num_units = estimate.run.num_microbatches // 2
    share = 3 / 4
    # The last chunk's forward and backward follow each other, and so do the first chunk's between units.
    gathered = num_units * (held[0] + 2 * held[1] + held[2]) + held[0]
    by_rank_0 = round(2 * gathered * share), round(4 * num_units * sum(held) * share)
    assert (traffic.gather_bytes, traffic.reduce_bytes) == by_rank_0
    assert traffic.tensor_parallel_bytes == traffic.replica_bytes == 0


def test_tensor_parallelism_sends_eight_hidden_states_a_layer_and_micro_batch() -> None:
    problem = small_problem()
    candidate = _first(
        problem,
        "3d-tp",
        tensor_parallel=2,
        pipeline_parallel=2,
        chunks=1,
        recomputation="none",
        micro_batch=1,
    )
    traffic, estimate = _evaluate(problem, candidate)
    shape, layers = problem.shape, problem.shape.num_layers // 2
    hidden = 2 * problem.sequence_tokens * shape.hidden_size
    # 4 all-reduces of 2 each, with (t - 1)/t of a ring; and one at the embedding or the head.
    expected = estimate.run.num_microbatches * (4 * layers + 1) * 2 * hidden * (1 / 2)
    assert traffic.tensor_parallel_bytes == round(expected)
    full, _ = _evaluate(problem, replace(candidate, recomputation="full"))
    assert full.tensor_parallel_bytes == round(expected * (6 * layers + 1) / (4 * layers + 1))


def test_gathers_for_each_micro_batch_are_as_many_as_passes() -> None:
    problem = small_problem()
    candidate = _first(problem, "1f1b-zero3", pipeline_parallel=2, recomputation="none", micro_batch=1)
    traffic, estimate = _evaluate(problem, candidate)
    held = max(stage.parameters.per_rank for stage in estimate.stages)
    count, share = estimate.run.num_microbatches, 1 - 1 / candidate.sharding.ranks
    assert traffic.gather_bytes == round(2 * 2 * count * held * share)
    assert traffic.reduce_bytes == round(4 * count * held * share)


@pytest.mark.parametrize(("hybrid", "elements"), [("zero3-dp", 2 * 4), ("zero3-zero1", 4 + 2)])
def test_replicas_share_their_shards(hybrid: str, elements: int) -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32)
    candidate = _first(problem, "zeropp", hybrid=hybrid, num_replicas=2)
    traffic, estimate = _evaluate(problem, candidate)
    own = estimate.schedule.stages_of_rank
    held = max(sum(estimate.stages[stage].parameters.per_rank for stage in each) for each in own)
    assert traffic.replica_bytes == round(elements * held / candidate.sharding.ranks / 2)


def test_the_sum() -> None:
    assert Traffic(1, 2, 4, 8, 16).total_bytes == 31


@pytest.mark.parametrize(
    ("hidden", "tokens", "least"), [(4096, 2048, 10), (8192, 4096, 10), (12288, 2048, 28)]
)
def test_the_papers_condition(hidden: int, tokens: int, least: int) -> None:
    assert unit_beats_tensor_parallelism(hidden, tokens, least, 1)
    assert not unit_beats_tensor_parallelism(hidden, tokens, least - 1, 1)
