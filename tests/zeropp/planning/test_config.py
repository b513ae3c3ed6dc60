from typing import Any

import pytest

from dtk.configuration import validate
from dtk.errors import InputError
from dtk.zeropp.planning.config import PlanConfig
from dtk.zeropp.planning.problem import RIVALS, Pins
from dtk.zeropp.planning.request import make_problem

SMALL = {"model": "gpt3-125m", "cluster": "DGX-A100x2", "global_batch": 16}


def config(**values: Any) -> PlanConfig:
    return validate(PlanConfig, SMALL | values)


def test_a_problem_from_settings() -> None:
    problem = make_problem(config(sequence_tokens=1024, unit="4", pp=2, memory="10GiB", rivals="3d, fsdp"))
    assert (problem.shape.name, problem.machine.num_chips, problem.global_batch) == ("gpt3-125m", 16, 16)
    assert (problem.sequence_tokens, problem.limit_bytes) == (1024, 10 * 2**30)
    assert problem.pins == Pins(pipeline_parallel=2, unit=4)
    assert config(rivals="3d, fsdp").rivals == ("3d", "fsdp")


def test_the_default_memory_is_what_a_chip_gives() -> None:
    assert make_problem(config()).limit_bytes == int(0.95 * 80 * 2**30)
    assert config(rivals="all").rivals == config().rivals == RIVALS
    assert config(rivals="none").rivals == ()


def test_a_batch_in_tokens() -> None:
    values = {"global_batch": None, "global_batch_tokens": 8192}
    assert make_problem(config(**values)).global_batch == 4


def test_a_large_micro_batch_that_is_given_is_tried() -> None:
    assert make_problem(config(micro_batch=32)).max_micro_batch == 32


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"model": None}, "model", "is needed"),
        ({"model": "gpt4"}, "model", "unknown model"),
        ({"cluster": None}, "cluster", "is needed"),
        ({"cluster": "DGX-A1000x2"}, "cluster", "unknown cluster"),
        ({"global_batch": None}, "global_batch", "is needed"),
        ({"global_batch": None, "global_batch_tokens": 5000}, "global_batch_tokens", "try 4096 or 6144"),
        ({"sequence_tokens": 4096}, "sequence_tokens", "longer than the 2048 positions"),
        ({"global_batch_tokens": 8192}, None, "not both"),
        ({"unit": 0}, "unit", "greater than or equal to 1"),
        ({"memory": "40Gb"}, "memory", "two ways"),
        ({"recipe": "adamw"}, "recipe", "unknown recipe"),
        ({"stack": "deepspeed"}, "stack", "unknown training software"),
        ({"rivals": "3d,4d"}, "rivals", "no method '4d'"),
        ({"hybrid": "zero2"}, "hybrid", "zero3-dp"),
        ({"time_budget_s": "60"}, "time_budget_s", "needs a unit"),
        ({"gpus": 8}, "gpus", "unknown key"),
    ],
)
def test_one_clear_line(values: dict[str, Any], field: str | None, words: str) -> None:
    with pytest.raises(InputError) as caught:
        make_problem(config(**values))
    assert caught.value.field == field
    assert words in str(caught.value)
