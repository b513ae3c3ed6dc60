"""Runs at the edges: nodes of odd sizes, huge models, sizes that do not fit: a result, or one clear line."""

import math
import time
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.costmodel.machine import machine_of
from dtk.errors import InputError
from dtk.hardware.catalogue import packaged_catalogue
from dtk.pipeline.iteration import ScheduleChoice, TrainingRun, estimate
from dtk.pipeline.iteration.run import FSDP
from dtk.workload import Layout, TrainingJob, TransformerShape, load_shape
from dtk.workload.states import Sharding
from tests.costmodel.machines import machine_of_figures, stack_of
from tests.pipeline.iteration.runs import CHUNKS, run_of

HUGE = st.sampled_from([1, 2, 3, 7, 64, 2**10, 2**20, 2**30, 2**40])


@hypothesis.settings(max_examples=200)
@hypothesis.given(
    st.fixed_dictionaries(
        {
            "num_layers": HUGE,
            "num_heads": HUGE,
            "head_dim": HUGE,
            "hidden_size": HUGE,
            "ffn_size": HUGE,
            "vocab_size": HUGE,
        }
    ),
    # Millions of micro-batches can be listed, which takes a minute: here it is a few, or too many.
    st.fixed_dictionaries(
        {
            "global_batch": st.sampled_from([1, 2, 64, 2**10, 2**40]),
            "micro_batch": st.sampled_from([1, 2, 2**40]),
            "sequence_tokens": HUGE,
        }
    ),
    st.sampled_from([1, 2, 2**10]),
    st.sampled_from([1, 2, 2**20]),
    st.sampled_from([1, 2, 2**30]),
    st.sampled_from([*CHUNKS, FSDP]),
)
def test_any_size_ends_with_a_result_or_one_line(
    sizes: dict[str, int], job: dict[str, int], data: int, tensor: int, pipeline: int, name: str
) -> None:
    """A simulator once overflowed 32 bits of nanoseconds on large models, and hung."""
    started = time.monotonic()
    layout = Layout(
        data_parallel=data,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        chunks=CHUNKS.get(name, (1,))[0],
    )
    found, refusal = None, ""
    try:
        found = estimate(
            TrainingRun(
                TransformerShape.from_values({"family": "gpt"} | sizes),
                TrainingJob(**job),
                layout,
                machine_of(f"DGX-A100x{max(1, layout.num_ranks // 8)}"),
                stack_of(),
                schedule=ScheduleChoice(name),
            )
        )
    except InputError as error:
        refusal = str(error)
    assert time.monotonic() - started < 60
    assert "\n" not in refusal
    if found is None:
        # A field, and what is wrong with it.
        assert ": " in refusal
    else:
        assert math.isfinite(found.iteration_s)
        assert found.iteration_s > 0
        assert found.peak_bytes > 0


@pytest.mark.parametrize("chips", [1, 3, 12, 16])
@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-70b"])
def test_nodes_of_odd_sizes(chips: int, name: str) -> None:
    """48 chips in nodes of any size, eight neighbours to a layer."""
    base = machine_of("DGX-A100x1")
    times = {}
    for per_node in (1, chips, 48):
        machine = machine_of_figures(
            chip=base.chip,
            constants=base.constants,
            chips_per_node=per_node,
            num_nodes=48 // per_node,
            fabric_bytes_per_s=base.fabric_bytes_per_s,
            pair_bytes_per_s=base.pair_bytes_per_s,
            fabric_latency_s=base.fabric_latency_s,
            network_bytes_per_s=base.chip_network_bytes_per_s * per_node,
            chip_network_bytes_per_s=base.chip_network_bytes_per_s,
            network_latency_s=base.network_latency_s,
        )
        layout = Layout(tensor_parallel=8, pipeline_parallel=2, data_parallel=3)
        job = TrainingJob(global_batch=48, sequence_tokens=2048)
        run = TrainingRun(load_shape(name), job, layout, machine, stack_of(), Sharding(1, 3))
        times[per_node] = estimate(run).iteration_s
    assert times[48] <= times[chips] <= times[1]
    # Nodes of sixteen hold whole groups of eight; nodes of twelve cut one of three, on which all wait.
    assert (times[chips] > 1.2 * times[48]) == (chips != 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": {"data_parallel": 3}}, "global_batch: must be a multiple of 6"),
        (
            {"layout": {"pipeline_parallel": 3}},
            "pipeline_parallel: times the 1 chunks of a rank must divide the 4 layers",
        ),
        ({"layout": {"tensor_parallel": 3}}, "tensor_parallel: must divide the 4 query heads"),
        ({"layers_per_stage": (1, 2)}, "layers_per_stage: must name the layers of 1 stages"),
        ({"layers_per_stage": (5,)}, "layers_per_stage: must add up to the model's 4 layers"),
        ({"machine": machine_of_figures(chips_per_node=8)}, "layout: makes 1 ranks of the 8 chips of test"),
        ({"sharding": Sharding(2, 1)}, "sharding_stage: is not modelled (got 2); 1 shards the optimizer"),
        ({"sharding": Sharding(1, 2)}, "sharding_ranks: must divide the 1 data-parallel ranks"),
        ({"schedule": ScheduleChoice("2f2b")}, "schedule: no such schedule"),
        ({"schedule": ScheduleChoice("interleaved")}, "num_chunks: interleaved has 2 or more chunks a rank"),
        (
            {"schedule": ScheduleChoice(FSDP), "layout": {"pipeline_parallel": 2}},
            "pipeline_parallel: fsdp has a single pipeline rank (got 2)",
        ),
        (
            {"schedule": ScheduleChoice(FSDP), "job": {"global_batch": 2**40}},
            "num_microbatches: with 1 ranks of 1 chunks",
        ),
        ({"precision": "tf32"}, "precision: V100-SXM-32GB has no such rate"),
        ({"precision": "fp4"}, "precision: is not modelled yet"),
    ],
)
def test_what_does_not_fit_is_one_line(changes: dict[str, Any], message: str) -> None:
    if "precision" in changes:
        changes = changes | {"machine": machine_of_figures(chip=packaged_catalogue().chip("V100-SXM-32GB"))}
    with pytest.raises(InputError) as caught:
        estimate(run_of(**changes))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("slow", [True, False])
def test_passes_and_holdings_beyond_counting_say_so(slow: bool) -> None:
    """A pass of hours, a terabyte for one micro-batch: no plan, but a line that says what is too large."""
    shape = load_shape("gpt3-175b")
    job = TrainingJob(
        global_batch=2**12, sequence_tokens=2048, micro_batch=2**12 if slow else 512, flash_attention=slow
    )
    machine = machine_of("DGX-A100x1")
    layout = Layout(data_parallel=1, tensor_parallel=8)
    what = "forward_ns" if slow else "activation_bytes"
    message = rf"^micro_batch: makes {what} of a stage too large to count: .*; smaller micro-batches"
    with pytest.raises(InputError, match=message):
        estimate(TrainingRun(shape, job, layout, machine, stack_of()))
