"""Iterations against the simulator in plain Python, a longest path written here, and the closed form."""

from dataclasses import replace
from functools import cache
from typing import Any

import hypothesis
import pytest

from dtk.costmodel.constants import Constant, StackConstants, stack_constants
from dtk.costmodel.machine import machine_of
from dtk.pipeline.action import Kind
from dtk.pipeline.iteration import Estimate, ScheduleChoice, TrainingRun, estimate
from dtk.pipeline.iteration.run import FSDP
from dtk.pipeline.simulate import simulate
from dtk.workload import Layout, TrainingJob, load_shape
from dtk.workload.flops import model_flops
from dtk.workload.parameters import count_parameters
from tests.costmodel.machines import chip_of, machine_of_figures
from tests.pipeline.iteration.runs import run_of, runs, shape_of


@hypothesis.given(runs())
def test_the_simulator_in_plain_python_says_the_same(run: Any) -> None:
    found = estimate(run)
    assert simulate(found.schedule, found.costs, engine="python") == found.simulation
    assert found.iteration_s == found.simulation.makespan_ns / 1e9


def order_of_1f1b(ranks: int, rank: int, micro_batches: int) -> list[tuple[str, int]]:
    """Warm up with as many forwards as ranks follow, then one forward and one backward in turn."""
    ahead = min(ranks - rank - 1, micro_batches)
    order = [("F", each) for each in range(ahead)]
    for each in range(micro_batches - ahead):
        order += [("F", ahead + each), ("B", each)]
    return order + [("B", each) for each in range(micro_batches - ahead, micro_batches)]


def longest_path_ns(found: Estimate) -> int:
    """1F1B as a graph: an action ends when the one listed before it and its input are there, plus its time.

    Messages of a link leave one after another, as they were made.
    """
    ranks, micro_batches, costs = found.costs.num_stages, found.run.num_microbatches, found.costs
    orders = [order_of_1f1b(ranks, rank, micro_batches) for rank in range(ranks)]

    @cache
    def arrived(kind: str, rank: int, micro_batch: int) -> int:
        sent = costs.activation_transfer_ns if kind == "F" else costs.gradient_transfer_ns
        before = arrived(kind, rank, micro_batch - 1) if micro_batch else 0
        return max(ended(kind, rank, micro_batch), before) + sent[rank]

    @cache
    def ended(kind: str, rank: int, micro_batch: int) -> int:
        order = orders[rank]
        place = order.index((kind, micro_batch))
        start = ended(order[place - 1][0], rank, order[place - 1][1]) if place else 0
        if kind == "F" and rank:
            start = max(start, arrived("F", rank - 1, micro_batch))
        if kind == "B" and rank < ranks - 1:
            start = max(start, arrived("B", rank + 1, micro_batch))
        both = costs.input_grad_ns[rank] + costs.weight_grad_ns[rank]
        return start + (costs.forward_ns[rank] if kind == "F" else both)

    last = max(ended("B", rank, micro_batches - 1) for rank in range(ranks))
    return last + max(costs.optimizer_ns)


@hypothesis.given(runs(("1f1b",)))
def test_1f1b_is_a_longest_path(run: Any) -> None:
    run = replace(run, sharding=type(run.sharding)())
    found = estimate(run)
    assert found.simulation.makespan_ns == longest_path_ns(found)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [4, 8, 24])
@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_the_closed_form_of_uniform_stages(ranks: int, micro_batches: int, name: str) -> None:
    """(M + P - 1) (F + B), and the ends of a model with a single word come on top."""
    run = run_of(
        shape=shape_of(num_layers=4, vocab_size=1, hidden_size=512),
        layout={"pipeline_parallel": ranks},
        job={"global_batch": 2 * micro_batches},
        machine=machine_of_figures(
            chip=chip_of(peak=1e12, memory_bytes_per_s=1e13),
            chips_per_node=ranks,
            fabric_bytes_per_s=1e15,
            pair_bytes_per_s=1e15,
        ),
        schedule=ScheduleChoice(name),
    )
    found = estimate(run)
    layers = 4 // ranks
    each_s = layers * found.stages[0].layer.total_s
    closed_s = (micro_batches + ranks - 1) * each_s
    ends_s = sum(part.total_s for stage in found.stages for part in stage.ends)
    step_s = max(found.costs.optimizer_ns) / 1e9
    rest_s = (micro_batches + ranks) * ends_s + 1e-6
    assert closed_s + step_s - 1e-6 <= found.iteration_s <= closed_s + step_s + rest_s
    assert rest_s < 0.1 * closed_s


@hypothesis.given(runs())
def test_no_iteration_is_faster_than_its_busiest_rank_or_its_slowest_micro_batch(run: Any) -> None:
    found = estimate(run)
    costs = found.costs
    passes = [costs.forward_ns, costs.input_grad_ns, costs.weight_grad_ns]
    once = [sum(times) for times in zip(*passes, strict=True)]
    busiest = max(sum(once[stage] for stage in own) for own in found.schedule.stages_of_rank)
    least = max(run.num_microbatches * busiest, sum(costs.forward_ns) + sum(costs.input_grad_ns))
    assert found.simulation.makespan_ns >= least + max(costs.optimizer_ns, default=0)
    assert 0 <= found.bubble_ratio < 1


@hypothesis.given(runs())
def test_no_chip_computes_more_than_its_peak(run: Any) -> None:
    """Model FLOPs over time, where fused attention may leave out what the convention counts."""
    found = estimate(run)
    flops = model_flops(
        run.shape,
        batch=run.job.global_batch,
        sequence_tokens=run.job.sequence_tokens,
        causal=run.job.flash_attention,
    )
    peak = run.machine.chip.peak("bf16") * run.machine.num_chips
    assert flops <= peak * found.iteration_s * (1 + 1e-6)
    assert found.tokens_per_s == pytest.approx(run.job.global_batch_tokens / found.iteration_s)
    assert found.utilisation == pytest.approx(found.model_flop_per_s / run.machine.chip.peak("bf16"))


@hypothesis.given(runs())
def test_every_pass_of_every_micro_batch_is_there_once(run: Any) -> None:
    found = estimate(run)
    parts = [
        part for row in found.schedule.actions for action in row for part in (action.sub_actions or (action,))
    ]
    kinds = [part.kind for part in parts]
    number = run.layout.num_stages * run.num_microbatches
    assert kinds.count(Kind.FORWARD) == number
    assert kinds.count(Kind.FULL_BACKWARD) + kinds.count(Kind.INPUT_GRAD) == number
    assert kinds.count(Kind.INPUT_GRAD) == kinds.count(Kind.WEIGHT_GRAD)
    # Which passes run apart is known beforehand.
    assert run.schedule.splits_backward >= (Kind.INPUT_GRAD in kinds)


@hypothesis.given(runs())
def test_the_parameters_of_the_stages_are_the_model_s(run: Any) -> None:
    held = sum(stage.parameters.distinct for stage in estimate(run).stages)
    padded = run.shape.padded_vocab_size(run.layout.tensor_parallel)
    assert held == count_parameters(run.shape.model_copy(update={"vocab_size": padded}))


@hypothesis.given(runs(("1f1b", "gpipe", "bfs", FSDP)))
def test_a_single_rank_without_collectives_is_the_sum_of_its_passes(run: Any) -> None:
    layout = run.layout.model_copy(
        update={"data_parallel": 1, "tensor_parallel": 1, "pipeline_parallel": 1, "sequence_parallel": False}
    )
    machine = replace(run.machine, num_nodes=1, chips_per_node=1)
    layers = run.shape.model_copy(update={"num_layers": layout.chunks})
    found = estimate(
        replace(run, shape=layers, layout=layout, machine=machine, sharding=type(run.sharding)())
    )
    costs = found.costs
    once = sum(costs.forward_ns) + sum(costs.input_grad_ns) + sum(costs.weight_grad_ns)
    assert found.simulation.makespan_ns == found.run.num_microbatches * once + sum(costs.optimizer_ns)


def test_a_host_that_was_fitted_on_other_machines_is_warned_of() -> None:
    """Layers of a small model over 8 ranks are over before the host has launched the next."""

    def found(cluster: str, stack: StackConstants, model: str = "gpt3-1.3b", **sizes: int) -> Estimate:
        job = TrainingJob(global_batch=8, sequence_tokens=1024, **sizes)
        layout = Layout(tensor_parallel=8)
        return estimate(TrainingRun(load_shape(model), job, layout, machine_of(cluster), stack))

    megatron = stack_constants()
    (warning,) = found("DGX-H100x1", megatron).warnings
    assert warning.startswith("the host sets the pace of layers: a pass takes at least the 1.04 ms")
    assert "those of H100-SXM-80GB may" in warning
    assert found("DGX-H100x1", stack_constants("torch-fsdp2")).warnings
    # It was fitted there; the chip sets the pace; or the host of that very machine was measured.
    assert found("DGX-A100x1", megatron).warnings == ()
    assert found("DGX-H100x1", megatron, "gpt3-175b", micro_batch=8).warnings == ()
    own = Constant(origin="estimate", source="measured here")
    measured = megatron.model_copy(update={"origins": {**megatron.origins, "host_layer_s": own}})
    assert found("DGX-H100x1", measured).warnings == ()
