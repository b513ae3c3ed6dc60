import pytest

from dtk.errors import InputError
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import ZEROPP, Pins, PlanProblem
from dtk.zeropp.planning.refusals import refuse_empty_space
from tests.zeropp.planning.problems import small_problem


def refusal(problem: PlanProblem) -> InputError:
    assert not list(METHODS[ZEROPP].space(problem))
    with pytest.raises(InputError) as caught:
        refuse_empty_space(problem)
    return caught.value


@pytest.mark.parametrize(
    ("pins", "field", "words"),
    [
        (Pins(pipeline_parallel=3), "pp", "must divide the 16 chips of DGX-A100x2"),
        (Pins(pipeline_parallel=8), "pp", "must divide the 12 layers of gpt3-125m"),
        (Pins(pipeline_parallel=4, chunks=2), "chunks", "one of 1, 3"),
        (Pins(chunks=5), "chunks", "must divide the 12 layers"),
        (Pins(micro_batch=3), "global_batch", "must be a multiple of 12"),
        (Pins(pipeline_parallel=2, shard_ranks=3), "shard_ranks", "one of 2, 4, 8"),
        (Pins(pipeline_parallel=2, shard_ranks=8, hybrid="zero3-zero1"), "hybrid", "needs replicas"),
        (Pins(unit=99), "unit", "at most 8 micro-batches"),
        (Pins(recomputation="selective"), "recomputation", "flash attention never keeps"),
        (Pins(recomputation="full", split=True), "split", "full recomputation"),
        (Pins(pipeline_parallel=4, chunks=1, resident_chunks=2), "resident_chunks", "gathers one"),
    ],
)
def test_each_option_is_blamed_for_what_it_does(pins: Pins, field: str, words: str) -> None:
    error = refusal(small_problem("gpt3-125m", "DGX-A100x2", global_batch=32, pins=pins))
    assert error.field == field
    assert words in str(error)
    assert "\n" not in str(error)


def test_a_batch_that_does_not_divide() -> None:
    error = refusal(small_problem("gpt3-125m", "DGX-A100x2", global_batch=30))
    assert error.field == "global_batch"
    assert "multiple of 4" in str(error)
    assert error.hint == "try 28 or 32"


def test_a_batch_that_is_too_small() -> None:
    error = refusal(small_problem("gpt3-125m", "DGX-A100x2", global_batch=3))
    assert error.hint == "try 4"


def test_options_that_only_together_do_not_fit() -> None:
    pins = Pins(chunks=2, unit=4, micro_batch=2)
    error = refusal(small_problem("gpt3-125m", "DGX-A100x2", global_batch=16, pins=pins))
    assert "no layout has all of the given options" in str(error) or error.field == "unit"


def test_layers_that_no_pipeline_divides() -> None:
    error = refusal(small_problem("megatron-529.6b", "DGX-A100x1", global_batch=8))
    assert error.field == "model"
    assert "no pipeline of 2 or more of the 8 chips" in str(error)
