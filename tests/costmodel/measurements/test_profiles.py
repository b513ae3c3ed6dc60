"""Published times of layers and stages, and plans on unlike chips: against each other and as printed."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from dtk.costmodel.measurements import (
    LayerProfile,
    Replica,
    sailor_layer_profiles,
    sailor_plans,
    torchtitan,
    zero_bubble,
    zero_bubble_stages,
)
from dtk.costmodel.measurements.reading import rows_of, runs_of
from dtk.errors import InputError
from dtk.hardware import packaged_catalogue
from dtk.workload.flops import layer_flops, logits_flops

PROFILES = sailor_layer_profiles()


def profile(chip: str, part: str, micro_batch: int, ranks: int) -> LayerProfile:
    """Return the only profile of these sizes."""
    key = (chip, part, micro_batch, ranks)
    found = [p for p in PROFILES if (p.chip, p.part, p.micro_batch, p.tensor_parallel) == key]
    assert len(found) == 1
    return found[0]


def test_profiles_are_all_there() -> None:
    assert len(PROFILES) == 387
    assert len({(p.chip, p.part, p.micro_batch, p.tensor_parallel) for p in PROFILES}) == 387
    for chip in {p.chip for p in PROFILES}:
        packaged_catalogue().chip(chip)
    known = {(p.chip, p.micro_batch, p.tensor_parallel) for p in PROFILES}
    assert len(known) * 3 == 387


def test_profiles_as_printed() -> None:
    layer = profile("RTX-3090", "layer", 2, 8)
    assert (layer.forward_s, layer.backward_s, layer.update_s) == (0.037899, 0.039596, 0.000868)
    head = profile("Titan-RTX", "head", 2, 2)
    assert (head.forward_s, head.backward_s) == (0.019002, 0.033385)
    assert layer.source.licence.startswith("MIT")


@pytest.mark.parametrize(
    "entry", PROFILES, ids=lambda p: f"{p.chip} {p.part} {p.micro_batch} {p.tensor_parallel}"
)
def test_no_chip_is_faster_than_its_peak(entry: LayerProfile) -> None:
    """A slip of a unit, or of a chip, would show."""
    if entry.part == "embedding":
        assert entry.forward_s > entry.backward_s
        return
    batch, tokens = entry.micro_batch, entry.sequence_tokens
    if entry.part == "layer":
        rows = layer_flops(entry.shape, micro_batch=batch, sequence_tokens=tokens)
        forward = sum(row.forward_flops for row in rows.values())
    else:
        forward = logits_flops(entry.shape, micro_batch=batch, sequence_tokens=tokens).forward_flops
    rates = packaged_catalogue().chip(entry.chip).peak_flop_per_s
    rate = forward / entry.tensor_parallel / entry.forward_s
    assert rate < (rates.tf32 or rates.fp32 or math.inf)
    if entry.tensor_parallel == 1:
        assert rate > 0.2 * (rates.fp32 or 0)


def test_larger_micro_batches_take_longer() -> None:
    groups: dict[tuple[str, str, int], list[LayerProfile]] = {}
    for entry in PROFILES:
        groups.setdefault((entry.chip, entry.part, entry.tensor_parallel), []).append(entry)
    for (_, part, _), group in groups.items():
        if part == "embedding":
            continue
        group.sort(key=lambda entry: entry.micro_batch)
        for smaller, larger in pairwise(group):
            # Launches limit micro-batches of one sequence; one such row is slower than that of two.
            slack = 0.75 if smaller.micro_batch == 1 else 1.0
            assert larger.forward_s + larger.backward_s > slack * (smaller.forward_s + smaller.backward_s)


def all_reduce_bytes_per_s(chip: str, micro_batch: int, ranks: int) -> float:
    """Return what each rank sends in the all-reduce behind the embedding, as a ring would."""
    alone, together = (profile(chip, "embedding", micro_batch, r).forward_s for r in (1, ranks))
    size = 4 * micro_batch * 2048 * 1024
    return 2 * (ranks - 1) / ranks * size / (together - alone)


def test_the_notes_on_the_nodes_follow_from_the_profiles() -> None:
    """What the catalogue says beside the printed 5.3 and 24 GB/s."""
    for micro_batch in (2, 8):
        assert all_reduce_bytes_per_s("RTX-3090", micro_batch, 8) == pytest.approx(1.5e9, rel=0.08)
        assert 4e9 < all_reduce_bytes_per_s("Titan-RTX", micro_batch, 8) < 5e9
    assert 4e9 < all_reduce_bytes_per_s("RTX-2080-Ti", 2, 8) < 5e9
    assert all_reduce_bytes_per_s("RTX-3090", 8, 2) == pytest.approx(30e9, rel=0.05)
    nodes = {name: packaged_catalogue().node(f"8x{name}") for name in ("RTX-3090", "Titan-RTX")}
    assert nodes["RTX-3090"].all_chips_bytes_per_s == 5.3e9
    assert nodes["Titan-RTX"].all_chips_bytes_per_s == 24e9


def test_plans_on_unlike_chips() -> None:
    mixed = [run for run in sailor_plans() if run.placement]
    assert [run.iteration_s for run in mixed] == [119.83914, 91.78, 59.45533]
    first, second, third = mixed
    assert first.layers_per_stage == (11, 13)
    assert second.placement == ((Replica("8xTitan-RTX", 2), Replica("8xRTX-3090", 2)),)
    assert third.layers_per_stage == (7, 9, 8)
    assert [stage[0].node for stage in third.placement] == ["8xRTX-3090", "8xRTX-2080-Ti", "8xTitan-RTX"]
    assert third.peak_memory_bytes == 6305087488


def test_a_plan_takes_about_what_its_slowest_stage_computes() -> None:
    chips = {node.name: node.chip for node in packaged_catalogue().nodes}
    for run in sailor_plans():
        stages = run.placement or ((Replica(run.node, run.layout.tensor_parallel),),) * run.layout.num_stages
        times = []
        for index, (replicas, layers) in enumerate(zip(stages, run.layers_per_stage, strict=True)):
            parts = {"layer": layers, "embedding": int(index == 0), "head": int(index == len(stages) - 1)}
            for replica in replicas:
                profiles = {
                    part: profile(chips[replica.node], part, run.job.micro_batch, replica.tensor_parallel)
                    for part in parts
                }
                each = sum(n * (profiles[p].forward_s + profiles[p].backward_s) for p, n in parts.items())
                times.append(run.num_microbatches * each)
        assert run.iteration_s is not None
        # Micro-batches of one were slower in the profiles than in the runs; slow networks come on top.
        assert 0.8 * max(times) < run.iteration_s < 1.7 * max(times)


def test_an_unknown_chip_in_a_plan_is_named() -> None:
    row = {**next(rows_of("sailor_plans")), "placement": "RTX-9090:4"}
    with pytest.raises(InputError, match=r"unknown chip.*RTX-9090.*GH-96"):
        runs_of("sailor_plans", [row])


def test_torchtitan_as_printed() -> None:
    runs = torchtitan()
    fast = max(runs, key=lambda run: run.chip_tokens_per_s or 0)
    assert (fast.chip_tokens_per_s, fast.precision, fast.options) == (8532, "fp8", ("compile",))
    pipelines = [run for run in runs if run.layout.pipeline_parallel > 1 and run.job.sequence_tokens == 8192]
    assert [run.peak_memory_bytes for run in pipelines] == [round(82.5 * 2**30), round(72.7 * 2**30)]
    assert {run.job.global_batch for run in pipelines} == {256}
    # The bubble of eight micro-batches on eight ranks, with one and two chunks, is behind the two rates.
    slow, quick = (run.measured_s for run in pipelines)
    assert slow / quick == pytest.approx(((8 + 7) / 8) / ((8 + 7 / 2) / 8), rel=0.03)


def test_stages_add_up_to_less_than_the_measured_iteration() -> None:
    """1f1b takes M + P - 1 of a stage's time; the optimizer and slower steps come on top."""
    stages = zero_bubble_stages()
    assert len(stages) == 12
    runs = [run for run in zero_bubble() if run.schedule == "1f1b"]
    for run, stage in zip(runs, stages, strict=True):
        assert (run.num_microbatches, run.job.micro_batch) == (stage.num_microbatches, stage.micro_batch)
        each = stage.forward_s + stage.input_gradient_s + stage.weight_gradient_s
        least = (stage.num_microbatches + stage.num_ranks - 1) * each
        assert 0.86 < least / run.measured_s < 1


def test_times_follow_from_samples() -> None:
    run = zero_bubble()[0]
    assert run.measured_s == pytest.approx(144 / 14.5 / 8)
    assert replace(run, iteration_s=2.0).measured_s == 2.0
