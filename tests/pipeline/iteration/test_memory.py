"""Memory of the ranks against workload's formulas, Megatron-LM's, and peaks that were measured."""

from dataclasses import replace
from typing import Any

import hypothesis
import pytest

from dtk.costmodel.machine import machine_of
from dtk.costmodel.measurements import MeasuredMemory, megatron_memory
from dtk.pipeline.iteration import Estimate, ScheduleChoice, TrainingRun, estimate
from dtk.pipeline.iteration.memory import reserve_bytes
from dtk.pipeline.iteration.published import described
from dtk.workload import Layout, TrainingJob, load_shape
from dtk.workload.activations import in_flight_chunks, layer_activation_bytes
from dtk.workload.states import Sharding
from tests.costmodel.machines import RATES, chip_of, machine_of_figures, stack_of
from tests.pipeline.iteration.runs import run_of, runs, shape_of

GIB = 2**30


def of(shape: str, layout: dict[str, Any], job: dict[str, Any], **changes: Any) -> Estimate:
    described_layout = Layout(**layout)
    nodes = -(-described_layout.num_ranks // 8)
    machine = machine_of(f"DGX-A100x{nodes}")
    return estimate(
        TrainingRun(load_shape(shape), TrainingJob(**job), described_layout, machine, stack_of(), **changes)
    )


def fast_run_of(**changes: Any) -> TrainingRun:
    """A run on a chip that is not too slow for what the simulation can count."""
    ranks = Layout(**changes["layout"]).num_ranks
    machine = machine_of_figures(chip=chip_of(peak=1e12, memory_bytes_per_s=1e12), chips_per_node=ranks)
    return run_of(machine=replace(machine, **dict.fromkeys(RATES, 1e9)), **changes)


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("recomputation", ["none", "selective", "full"])
def test_activations_are_those_that_the_schedule_holds(chunks: int, recomputation: Any) -> None:
    """The simulation's peak on each rank, without dropout: chunks in flight times a chunk's layers."""
    layout = {"pipeline_parallel": 4, "chunks": chunks}
    job = {"recomputation": recomputation, "global_batch": 32}
    name = "1f1b" if chunks == 1 else "interleaved"
    run = fast_run_of(shape=shape_of(num_layers=12), layout=layout, job=job, schedule=ScheduleChoice(name))
    found = estimate(run)
    layer = layer_activation_bytes(run.shape, run.settings)
    for rank, memory in enumerate(found.memory):
        chunks_held = in_flight_chunks(4, rank, chunks, run.num_microbatches)
        assert memory.schedule_bytes == chunks_held * (12 // 4 // chunks) * layer


def megatron_s_gib(run: TrainingRun) -> tuple[float, float]:
    """Megatron-LM's theoretical_memory_usage.py for the first stage, under sequence parallelism and selective
    recomputation: 34 s b h a layer of a 4h MLP, for as many micro-batches as there are stages, with the
    dropout mask of the embedding, and 18 or 6 + 12/D bytes a parameter.
    """
    shape, layout = run.shape, run.layout
    tokens, hidden = run.job.micro_batch * run.job.sequence_tokens, shape.hidden_size
    layers = tokens * hidden * (18 + 4 * shape.ffn_size / hidden) * shape.num_layers
    embedding = tokens * hidden * layout.pipeline_parallel
    block = shape.num_layers * (12 * hidden**2 + 4 * hidden) + 2 * hidden
    parameters = (
        block / layout.pipeline_parallel + shape.padded_vocab_size() * hidden
    ) / layout.tensor_parallel
    each = 6 + 12 / layout.data_parallel if run.sharding.stage else 18
    return parameters * each / GIB, (layers + embedding) / layout.tensor_parallel / GIB


@pytest.mark.parametrize("data_parallel", [1, 4])
@pytest.mark.parametrize("pipeline_parallel", [2, 8])
def test_megatron_s_own_estimate(data_parallel: int, pipeline_parallel: int) -> None:
    layout = {
        "tensor_parallel": 8,
        "pipeline_parallel": pipeline_parallel,
        "data_parallel": data_parallel,
        "sequence_parallel": True,
    }
    job = {
        "global_batch": 64,
        "sequence_tokens": 2048,
        "recomputation": "selective",
        "flash_attention": False,
        "dropout": True,
    }
    sharding = Sharding(1, data_parallel) if data_parallel > 1 else Sharding()
    found = of("gpt3-175b", layout, job, sharding=sharding)
    states, activations = megatron_s_gib(found.run)
    first = found.memory[0]
    # It leaves out biases, and positions, which every tensor-parallel rank holds.
    positions = found.run.shape.learned_positions * found.run.shape.hidden_size
    positions_gib = positions * (6 + 12 / data_parallel) / GIB
    assert first.states_bytes / GIB == pytest.approx(states + positions_gib, rel=0.002)
    assert first.schedule_bytes / GIB == pytest.approx(activations, rel=1e-9)


@pytest.mark.parametrize("row", megatron_memory(), ids=lambda row: row.name)
def test_peaks_that_were_measured_on_h800(row: MeasuredMemory) -> None:
    """Llama-2 7B on eight chips: within a tenth, with the reserve for context and workspaces."""
    found = estimate(described(row))
    assert row.peak_memory_bytes is not None
    assert found.peak_bytes == pytest.approx(row.peak_memory_bytes, rel=0.10)
    assert found.fits


def test_the_heaviest_stage_counts_not_the_average() -> None:
    """Eight layers as [1, 2, 2, 3]: an estimator of NVIDIA's averaged them and was a third too low."""
    layout = {"pipeline_parallel": 4}
    shape = shape_of(num_layers=8, hidden_size=256, vocab_size=50, tied_embeddings=False)
    even, uneven = (
        estimate(fast_run_of(shape=shape, layout=layout, layers_per_stage=layers)).memory
        for layers in ((2, 2, 2, 2), (1, 2, 2, 3))
    )
    layer = 18 * (12 * 256**2 + 13 * 256)
    assert [one.states_bytes - two.states_bytes for one, two in zip(uneven, even, strict=True)] == [
        -layer,
        0,
        0,
        layer,
    ]
    assert max(each.states_bytes for each in uneven) == uneven[3].states_bytes
    assert uneven[3].states_bytes == 3 * layer + 18 * (2 * 256 + 50 * 256)


@hypothesis.given(runs())
def test_memory_by_what_it_is_for(run: Any) -> None:
    found = estimate(run)
    assert found.peak_bytes == max(memory.total_bytes for memory in found.memory)
    for memory in found.memory:
        parts = (memory.states_bytes, memory.schedule_bytes, memory.working_bytes, memory.reserve_bytes)
        assert memory.total_bytes == sum(parts)
        assert min(parts) >= 0
        assert memory.reserve_bytes == reserve_bytes()
    assert found.fits == (found.peak_bytes <= found.limit_bytes)
    assert found.limit_bytes < run.machine.chip.memory_bytes


@hypothesis.given(runs())
def test_recomputation_saves_memory(run: Any) -> None:
    peaks = []
    for each in ("none", "selective", "full"):
        job = run.job.model_copy(update={"recomputation": each})
        found = estimate(
            TrainingRun(run.shape, job, run.layout, run.machine, run.stack, run.sharding, run.schedule)
        )
        peaks.append([memory.schedule_bytes for memory in found.memory])
    none, selective, full = peaks
    for rank in range(len(none)):
        assert full[rank] <= selective[rank] <= none[rank]


def test_sharding_over_more_ranks_holds_less() -> None:
    held = []
    for ranks in (1, 2, 4, 8):
        run = fast_run_of(layout={"data_parallel": 8}, job={"global_batch": 16}, sharding=Sharding(1, ranks))
        held.append(estimate(run).memory[0].states_bytes)
    (parameters,) = {estimate(run).stages[0].parameters.per_rank}
    assert held == [6 * parameters + 12 * -(-parameters // ranks) for ranks in (1, 2, 4, 8)]


def test_the_last_rank_holds_the_logits_while_it_works() -> None:
    """The final norm's and the head's input in 16 bits, and logits in fp32, of 48 tokens."""
    first, last = estimate(fast_run_of(layout={"pipeline_parallel": 2})).memory
    assert last.working_bytes - first.working_bytes == 48 * (2 * 2 * 32 + 4 * 100)
