import pytest

from dtk.zeropp.planning.evaluation import Evaluator
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import Pins
from dtk.zeropp.planning.reasons import MEMORY_NAMES, TIME_NAMES, memory_parts, time_parts
from tests.zeropp.planning.problems import small_problem


@pytest.mark.parametrize("method", METHODS)
def test_parts_add_up(method: str) -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32, stack="megatron-overlapped")
    evaluator = Evaluator(problem)
    space = list(METHODS[method].space(problem))
    for candidate in space[:: max(1, len(space) // 12)]:
        estimate = evaluator.evaluate(candidate).estimate
        times, memory = time_parts(estimate), memory_parts(estimate)
        assert sum(times.seconds.values()) == pytest.approx(estimate.iteration_s, rel=1e-4)
        assert all(value > 0 for value in times.seconds.values())
        assert set(times.seconds) <= set(TIME_NAMES)
        assert memory.total_bytes == estimate.peak_bytes == estimate.memory[memory.rank].total_bytes
        assert set(memory.size_bytes) <= set(MEMORY_NAMES)


def test_compute_that_collectives_slow_shows() -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32, stack="torch-fsdp2")
    candidate = next(iter(METHODS["zeropp"].space(problem)))
    estimate = Evaluator(problem).evaluate(candidate).estimate
    parts = time_parts(estimate).seconds
    assert 0 < parts["slowed"] < parts["layers"]
    assert sum(parts.values()) == pytest.approx(estimate.iteration_s, rel=1e-5)


def test_a_tied_embedding_shows_on_the_ranks_that_hold_it() -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32)
    candidate = next(each for each in METHODS["3d"].space(problem) if each.pipeline_parallel == 2)
    assert "tied_embedding" in time_parts(Evaluator(problem).evaluate(candidate).estimate).seconds


def test_recomputation_and_tensor_parallelism_show() -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32)
    space = [each for each in METHODS["3d"].space(problem) if each.pipeline_parallel == 2]
    evaluator = Evaluator(problem)
    plain = next(each for each in space if each.tensor_parallel == 1 and each.recomputation == "none")
    parts = time_parts(evaluator.evaluate(plain).estimate)
    assert not {"recomputation", "tensor_parallel", "unshard"} & set(parts.seconds)
    full = next(each for each in space if each.tensor_parallel == 2 and each.recomputation == "full")
    parts = time_parts(evaluator.evaluate(full).estimate)
    assert {"recomputation", "tensor_parallel", "fill", "synchronisation", "optimizer"} <= set(parts.seconds)
    assert parts.largest_loss is not None
    assert parts.largest_loss[0] in {"recomputation", "tensor_parallel", "host", "fill", "drain"}


def test_a_gathered_chunk_shows_in_memory_and_time() -> None:
    pins = Pins(pipeline_parallel=1, chunks=4, shard_ranks=8, unit=1, resident_chunks=1)
    problem = small_problem("gpt3-1.3b", "8xA800-200Gbx1", global_batch=16, pins=pins)
    candidate = next(iter(METHODS["zeropp"].space(problem)))
    estimate = Evaluator(problem).evaluate(candidate).estimate
    assert {"parameter", "gradient", "weights", "optimizer"} <= set(memory_parts(estimate).size_bytes)
    assert "unshard" in time_parts(estimate).seconds
