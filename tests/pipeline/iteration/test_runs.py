"""Runs as wholes: sizes that do not fit are refused, and the states of all ranks are those of the model."""

from typing import Any

import pytest

from dtk.costmodel.constants import stack_constants
from dtk.costmodel.machine import machine_of
from dtk.errors import InputError
from dtk.pipeline.iteration import TrainingRun, estimate
from dtk.pipeline.iteration.run import FSDP, ScheduleChoice
from dtk.pipeline.iteration.stages import collectives_ns, stage_costs, stage_times
from dtk.workload import Layout, TrainingJob, load_shape
from dtk.workload.parameters import count_parameters
from dtk.workload.states import Sharding

TIED = load_shape("gpt3-1.3b")


def run_of(layout: dict[str, Any], schedule: str = "1f1b", **changes: Any) -> TrainingRun:
    values: dict[str, Any] = {
        "shape": TIED,
        "job": TrainingJob(global_batch=64, sequence_tokens=1024),
        "layout": Layout(**layout),
        "machine": machine_of("DGX-A100x1"),
        "stack": stack_constants(),
        "schedule": ScheduleChoice(schedule),
    }
    return TrainingRun(**(values | changes))


@pytest.mark.parametrize(
    ("layout", "schedule", "copies"),
    [
        ({"data_parallel": 8, "chunks": 24}, FSDP, 1),
        ({"pipeline_parallel": 4, "chunks": 2, "tensor_parallel": 2}, "zb-v", 1),
        ({"pipeline_parallel": 4, "chunks": 2, "tensor_parallel": 2}, "dualpipe-v", 1),
        ({"pipeline_parallel": 4, "chunks": 2, "tensor_parallel": 2}, "interleaved", 2),
        ({"pipeline_parallel": 8}, "1f1b", 2),
    ],
)
def test_a_tied_embedding_is_kept_once_on_a_rank(layout: dict[str, int], schedule: str, copies: int) -> None:
    sharding = Sharding(3, 8) if schedule == FSDP else Sharding()
    run = run_of(layout, schedule, sharding=sharding)
    group = run.shard_ranks * run.layout.tensor_parallel
    held = sum(memory.states_bytes for memory in estimate(run).memory) * group
    embedding = TIED.padded_vocab_size(run.layout.tensor_parallel) * TIED.embedding_size
    parameters = count_parameters(TIED) + (copies - 1) * embedding
    # Norms, positions and some biases stand on every tensor-parallel rank, shards are rounded up.
    assert held == pytest.approx(run.job.precision.bytes_per_parameter * parameters, rel=5e-3)


@pytest.mark.parametrize(
    ("sharding", "data_parallel"),
    [(Sharding(3, 8, 100), 8), (Sharding(3, 4, 4), 8), (Sharding(1, 4, 2), 8), (Sharding(0, 1, 8), 8)],
)
def test_states_over_replicas_that_are_not_there(sharding: Sharding, data_parallel: int) -> None:
    with pytest.raises(InputError, match=r"^optimizer_replicas: must be 1, or under sharding stage 3 the"):
        run_of({"data_parallel": data_parallel}, sharding=sharding)


def test_states_over_all_replicas() -> None:
    run = run_of({"data_parallel": 8, "chunks": 24}, FSDP, sharding=Sharding(3, 4, 2))
    plain = run_of({"data_parallel": 8, "chunks": 24}, FSDP, sharding=Sharding(3, 4))
    spared = [estimate(each).memory[0].states_bytes for each in (plain, run)]
    assert spared[0] - spared[1] == pytest.approx(12 * count_parameters(TIED) / 8, rel=1e-3)


def test_uneven_stages_do_not_hide_what_else_does_not_fit() -> None:
    uneven: dict[str, Any] = {"layers_per_stage": (7, 5, 6, 6)}
    layout = {"pipeline_parallel": 4, "tensor_parallel": 2}
    assert run_of(layout, **uneven).stage_layers == (7, 5, 6, 6)
    job = TrainingJob(global_batch=64, sequence_tokens=4096)
    with pytest.raises(InputError, match="sequence_tokens: is longer than the 2048 positions"):
        run_of(layout, job=job, **uneven)
    with pytest.raises(InputError, match="global_batch: must be a multiple of 2"):
        run_of(
            {"data_parallel": 2, "pipeline_parallel": 4},
            job=TrainingJob(global_batch=3, sequence_tokens=64),
            **uneven,
        )
    with pytest.raises(InputError, match="layers_per_stage: must name the layers of 4 stages"):
        run_of(layout, layers_per_stage=(12, 12))


def test_weight_gradients_wait_with_what_zero_bubble_pipelines_count() -> None:
    """32 s b h bytes a layer of a GPT in 16 bits: arXiv 2401.10241, table 1."""
    run = run_of(
        {"pipeline_parallel": 8}, job=TrainingJob(global_batch=64, sequence_tokens=512, micro_batch=2)
    )
    for stage in stage_times(run):
        assert stage.weight_grad_bytes == stage.num_layers * 32 * 512 * 2 * TIED.hidden_size


@pytest.mark.parametrize("nodes", [1, 2])
def test_gathers_of_the_backward_pass_share_nics_with_reductions(nodes: int) -> None:
    ranks = 8 * nodes
    run = run_of(
        {"data_parallel": ranks, "chunks": 24},
        FSDP,
        machine=machine_of(f"DGX-A100x{nodes}"),
        sharding=Sharding(3, ranks),
    )
    stages = stage_times(run)
    for charged, gather, reduce in zip(
        stage_costs(run, stages).reduce_grad_ns, *collectives_ns(run, stages), strict=True
    ):
        assert charged == pytest.approx(reduce + (gather if nodes > 1 else 0), abs=1)


@pytest.mark.parametrize("precision", ["fp8", "fp4", "int8"])
def test_precisions_below_16_bits_are_refused(precision: Any) -> None:
    with pytest.raises(InputError, match=f"precision: is not modelled yet .got '{precision}'"):
        run_of({"data_parallel": 8}, precision=precision)
    assert run_of({"data_parallel": 8}, precision="fp16").roofline.precision == "fp16"
