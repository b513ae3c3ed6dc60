"""The published runs: counts, units and sizes against what is printed beside them, and against each other."""

import math
from collections.abc import Callable

import pytest

from dtk.costmodel import measurements
from dtk.costmodel.measurements import MeasuredRun
from dtk.costmodel.measurements.reading import rows_of
from dtk.hardware import packaged_catalogue
from dtk.pipeline.generators.registry import SCHEDULES
from dtk.workload.flops import model_flops
from dtk.workload.job import check_layout
from dtk.workload.parameters import count_parameters
from dtk.workload.reading import load_shape

COUNTS: dict[Callable[[], tuple[MeasuredRun, ...]], int] = {
    measurements.vtrain_multi_node: 62,
    measurements.vtrain_single_node: 717,
    measurements.korthikanti: 8,
    measurements.megatron_weak_scaling: 10,
    measurements.megatron_ptd_and_zero3: 12,
    measurements.mt_nlg: 3,
    measurements.v100_a100_pair: 12,
    measurements.internevo_7b: 27,
    measurements.torchtitan: 15,
    measurements.sailor_plans: 13,
    measurements.zero_bubble: 48,
}
RUNS = [run for load in COUNTS for run in load()]


@pytest.mark.parametrize(("load", "count"), COUNTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_all_rows_are_there(load: Callable[[], tuple[MeasuredRun, ...]], count: int) -> None:
    runs = load()
    assert len(runs) == count
    assert len({run.name for run in runs}) == count
    assert load() is runs
    assert {run.source.name for run in runs} == {load.__name__}


def test_every_table_says_where_it_is_from() -> None:
    for published in measurements.published_sets().values():
        assert published.url.startswith("https://")
        assert published.title
        assert published.licence
        assert published.state in {"confirmed", "recollected"}
        assert published.basis in {"published", "analytic"}


@pytest.mark.parametrize("name", measurements.published_sets())
def test_printed_chips_are_the_product_of_the_degrees(name: str) -> None:
    for row in rows_of(name):
        if "num_chips" not in row:
            assert name in {"sailor_layer_profiles", "zero_bubble_stages"}
            continue
        degrees = (row[f"{kind}_parallel"] for kind in ("tensor", "data", "pipeline"))
        assert row["num_chips"] == math.prod(degrees)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.source.name} {run.name}")
def test_a_run_fits_its_layout_its_hardware_and_its_schedule(run: MeasuredRun) -> None:
    hardware = packaged_catalogue()
    chip = hardware.chip(hardware.node(run.node).chip)
    assert run.num_microbatches >= 1
    if run.schedule not in {"zb-1p", "zb-2p"}:
        assert SCHEDULES[run.schedule].takes(run.layout.chunks)
    if run.layers_per_stage:
        assert len(run.layers_per_stage) == run.layout.num_stages
        assert sum(run.layers_per_stage) == run.shape.num_layers
    else:
        check_layout(run.shape, run.job, run.layout)
    if run.cluster is not None:
        cluster = hardware.cluster(run.cluster)
        assert run.num_chips <= hardware.num_chips(cluster)
        nodes = {run.node, *(replica.node for stage in run.placement for replica in stage)}
        assert nodes <= {group.node for group in cluster.groups}
    else:
        assert run.source.name == "v100_a100_pair"
    # A slip of a prefix, or of a column, is a factor of ten or more.
    job = run.job
    needed = model_flops(
        run.shape,
        batch=job.global_batch,
        sequence_tokens=job.sequence_tokens,
        recomputation=job.recomputation,
    )
    # What is called fp32 may have run as TF32.
    rates = chip.peak_flop_per_s
    peak = rates.tf32 if run.precision == "fp32" and rates.tf32 else chip.peak(run.precision)
    share_of_peak = needed / run.measured_s / run.num_chips / peak
    assert 0.01 < share_of_peak < 0.65


def test_printed_flop_rates_are_those_of_the_printed_times() -> None:
    both = [run for run in RUNS if run.iteration_s is not None and run.chip_flop_per_s is not None]
    assert len(both) == 15
    for run in both:
        assert run.iteration_s is not None
        rate = run.counted_flops / run.iteration_s / run.num_chips
        # Whole TFLOP/s of MT-NLG, tenths of the others, whose times are whole milliseconds.
        close = 1e12 if run.source.name == "mt_nlg" else 0.15e12
        assert rate == pytest.approx(run.chip_flop_per_s, abs=close)


def test_weak_scaling_agrees_with_what_the_paper_prints_beside_it() -> None:
    runs = measurements.megatron_weak_scaling()
    for run, row in zip(runs, rows_of("megatron_weak_scaling"), strict=True):
        assert run.chip_flop_per_s is not None
        together = run.chip_flop_per_s * run.num_chips / 1e15
        assert together == pytest.approx(row["cluster_pflop_per_s"], abs=0.0005 * run.num_chips + 0.05)
    times = {run.shape.name: run.measured_s for run in runs}
    assert times["megatron-1.7b"] == pytest.approx(3.53, abs=0.005)
    assert times["megatron-145.6b"] == pytest.approx(24.8, abs=0.05)
    assert times["megatron-529.6b"] == pytest.approx(54.1, abs=0.05)
    assert times["megatron-1008b"] == pytest.approx(102.6, abs=0.05)


def test_pipelines_of_table_2_take_the_printed_days() -> None:
    rows = [row for row in rows_of("megatron_ptd_and_zero3") if "days_of_300b_tokens" in row]
    assert len(rows) == 6
    for run, row in zip(measurements.megatron_ptd_and_zero3(), rows, strict=False):
        days = 300e9 / run.job.global_batch_tokens * run.measured_s / 86400
        # Whole days, it seems cut off and not rounded.
        assert days == pytest.approx(row["days_of_300b_tokens"], abs=1)


def test_vtrain_has_the_shapes_it_names() -> None:
    names = {3.6: "megatron-3.6b", 18.4: "megatron-18.4b", 175: "gpt3-175b"}
    for run, row in zip(measurements.vtrain_multi_node(), rows_of("vtrain_multi_node"), strict=True):
        known = load_shape(names[row["parameters_b"]])
        assert (run.shape.hidden_size, run.shape.num_heads, run.shape.num_layers) == (
            known.hidden_size,
            known.num_heads,
            known.num_layers,
        )
        assert count_parameters(run.shape) == pytest.approx(row["parameters_b"] * 1e9, rel=0.02)


def test_vtrain_as_printed() -> None:
    multi, single = measurements.vtrain_multi_node(), measurements.vtrain_single_node()
    times = {
        (run.layout.tensor_parallel, run.layout.data_parallel, run.job.micro_batch): run.iteration_s
        for run in multi
        if "h3072" in run.shape.name and run.layout.pipeline_parallel == 1
    }
    assert times[8, 8, 64] == pytest.approx(9.8389)
    assert times[1, 64, 8] == pytest.approx(3.5665)
    assert single[0].iteration_s == pytest.approx(0.37216, abs=1e-5)
    assert {run.num_chips for run in single} == {2, 4, 8}
    # Measured twice: both are kept.
    twice = [run for run in multi if run.name.endswith("#2")]
    assert [run.iteration_s for run in twice] == pytest.approx([53.9379])


def test_internevo_counts_one_or_four_micro_batches() -> None:
    runs = measurements.internevo_7b()
    assert {(run.job.recomputation, run.num_microbatches) for run in runs} == {("none", 4), ("full", 1)}
    printed = [run for run in runs if run.chip_flop_per_s is not None]
    assert [run.num_chips for run in printed] == [8, 1024]
    for run in printed:
        assert run.chip_flop_per_s is not None
        rate = run.counted_flops / run.measured_s / run.num_chips
        assert rate == pytest.approx(run.chip_flop_per_s, abs=1e12)


def test_a_run_without_a_speed_has_no_time() -> None:
    run = measurements.korthikanti()[0]
    values = {field: getattr(run, field) for field in MeasuredRun.__dataclass_fields__}
    with pytest.raises(ValueError, match="korthikanti has no speed"):
        _ = MeasuredRun(**values | {"iteration_s": None}).measured_s
