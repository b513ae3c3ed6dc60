"""Jobs and layouts: what divides, and the one line about what does not."""

from typing import Any

import pytest

from dtk.errors import InputError
from dtk.workload.job import Layout, TrainingJob, check_layout
from tests.workload.shapes import gpt

JOB: dict[str, Any] = {"global_batch": 64, "sequence_tokens": 32}


def job(**values: Any) -> TrainingJob:
    return TrainingJob.from_values(JOB | values)


def test_what_follows_from_a_job() -> None:
    assert job(micro_batch=2).num_microbatches(8) == 4
    assert job().global_batch_tokens == 64 * 32
    assert job(recipe="adam-fp32").precision.element_bytes == 4
    layout = Layout(tensor_parallel=4, sequence_parallel=True, pipeline_parallel=2, chunks=3, data_parallel=5)
    assert (layout.num_ranks, layout.num_stages) == (40, 6)
    settings = job(micro_batch=2, recomputation="full")
    activations = settings.activation_settings(layout)
    assert (activations.micro_batch, activations.sequence_tokens, activations.tensor_parallel) == (2, 32, 4)
    assert activations.sequence_parallel
    assert activations.recomputation == "full"
    assert activations.flash_attention
    assert not activations.attention_dropout
    assert job(recipe="adam-fp32").activation_settings(layout).element_bytes == 4


def test_a_layout_that_fits() -> None:
    check_layout(gpt(), job(), Layout(data_parallel=4, tensor_parallel=4, pipeline_parallel=2, chunks=2))


@pytest.mark.parametrize(
    ("values", "layout", "message"),
    [
        (
            {"global_batch": 62},
            {"data_parallel": 8},
            r"global_batch: must be a multiple of 8, data-parallel ranks \(8\).*got 62\); try 56 or 64",
        ),
        ({"micro_batch": 20}, {"data_parallel": 4}, r"multiple of 80.*; try 80"),
        ({"sequence_tokens": 65}, {}, "sequence_tokens: is longer than the 64 positions of unnamed"),
        ({}, {"tensor_parallel": 3}, "tensor_parallel: must divide the 4 query heads"),
        (
            {"sequence_tokens": 30},
            {"tensor_parallel": 4, "sequence_parallel": True},
            "tensor_parallel: must divide the 30 tokens of a sequence",
        ),
        (
            {},
            {"pipeline_parallel": 3},
            "pipeline_parallel: times the 1 chunks of a rank must divide the 4 layers",
        ),
        ({}, {"pipeline_parallel": 2, "chunks": 4}, "times the 4 chunks of a rank must divide the 4 layers"),
    ],
)
def test_layouts_that_do_not_fit(values: dict[str, Any], layout: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check_layout(gpt(), job(**values), Layout(**layout))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"global_batch": 0}, "global_batch: must be greater"),
        ({"recipe": "adam"}, r"recipe: unknown recipe \(got 'adam'\); one of"),
        ({"batch": 1}, "batch: unknown key"),
        ({"recomputation": "some"}, "recomputation: must be 'none'"),
    ],
)
def test_jobs_that_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        job(**values)


def test_no_ranks() -> None:
    with pytest.raises(InputError, match="global_batch"):
        job().num_microbatches(0)
