"""The time of a layer, the embedding and the head: sums written out, and what must hold for all."""

import math
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.costmodel.constants import StackConstants
from dtk.costmodel.layer import PartTime, embedding_time, head_time, layer_time
from dtk.costmodel.machine import Machine
from dtk.costmodel.operations import layer_operations
from dtk.workload.activations import ActivationSettings
from dtk.workload.transformer import TransformerShape
from tests.costmodel.machines import (
    LATENCIES,
    RATES,
    STACK_TIMES,
    chip_of,
    communication_of,
    machine_of_figures,
    machines,
    roofline_of,
    slower,
    stack_of,
    stacks,
)
from tests.workload.shapes import gpt, shapes

TIMES = [layer_time, embedding_time, head_time]
SLOWER = [
    *RATES,
    "peak",
    "memory_bytes_per_s",
    "matmul_share",
    "attention_share",
    "memory_share",
    "fabric_share",
    "network_share",
]

# gpt(): hidden 32, four heads, MLP 128, vocabulary 100; two sequences of 24 tokens.
TOKENS, HIDDEN = 48, 32
STATE_BYTES = 2 * TOKENS * HIDDEN


def settings_of(ranks: int = 1, **changes: Any) -> ActivationSettings:
    return ActivationSettings(micro_batch=2, sequence_tokens=24, tensor_parallel=ranks, **changes)


def time_of(
    part: Any, settings: ActivationSettings, machine: Machine, stack: StackConstants | None = None
) -> PartTime:
    found = part(gpt(), settings, roofline_of(machine), communication_of(machine, stack))
    assert isinstance(found, PartTime)
    return found


def computing(**figures: Any) -> Machine:
    """A FLOP a second, bytes of device memory for free, and links of a byte a second."""
    return machine_of_figures(chip=chip_of(memory_bytes_per_s=math.inf), chips_per_node=4, **figures)


def linking(**figures: Any) -> Machine:
    """Compute for free, links of a byte a second."""
    chip = chip_of(peak=math.inf, memory_bytes_per_s=math.inf)
    return machine_of_figures(chip=chip, chips_per_node=4, **figures)


def passes(part: PartTime) -> tuple[float, float, float]:
    return part.forward_s, part.input_grad_s, part.weight_grad_s


def test_compute_by_hand() -> None:
    matrices = 2 * TOKENS * 12 * HIDDEN**2
    core = 2 * (2 * 2 * 24 * 24 * HIDDEN)
    assert passes(time_of(layer_time, settings_of(), computing())) == (
        matrices + core,
        matrices + 2 * core,
        matrices,
    )
    selective = settings_of(recomputation="selective")
    assert passes(time_of(layer_time, selective, computing())) == (
        matrices + core,
        matrices + 3 * core,
        matrices,
    )
    full = settings_of(recomputation="full")
    again = matrices + core
    assert passes(time_of(layer_time, full, computing())) == (again, matrices + 2 * core + again, matrices)
    logits = 2 * TOKENS * HIDDEN * 100
    assert passes(time_of(head_time, settings_of(), computing())) == (logits, logits, logits)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_communication_by_hand(ranks: int, sequence_parallel: bool) -> None:
    """Two sums forward, two backward, two more if the forward runs again; the same bytes either way."""
    once = 2 * (ranks - 1) / ranks * STATE_BYTES
    settings = settings_of(ranks, sequence_parallel=sequence_parallel)
    layer = time_of(layer_time, settings, linking())
    assert passes(layer) == pytest.approx((2 * once, 2 * once, 0))
    assert layer.communication_s == pytest.approx(4 * once)
    full = time_of(layer_time, replace(settings, recomputation="full"), linking())
    assert passes(full) == pytest.approx((2 * once, 4 * once, 0))
    assert full.communication_s == pytest.approx(6 * once)
    assert full.recomputed_s == pytest.approx(2 * once)
    selective = time_of(layer_time, replace(settings, recomputation="selective"), linking())
    assert passes(selective) == passes(layer)
    embedding, head = time_of(embedding_time, settings, linking()), time_of(head_time, settings, linking())
    assert passes(embedding) == pytest.approx((once, 0, 0))
    # Largest logit, the target's logit and the sum of exponentials: fp32 for each token.
    loss = 3 * 2 * (ranks - 1) / ranks * 4 * TOKENS
    assert passes(head) == pytest.approx((loss, once, 0))
    assert head.communication_s == pytest.approx(loss + once)


def test_weight_gradients_hide_reductions_as_long_as_they_last() -> None:
    """Those of qkv and of the MLP's first matrix, each behind the sum of its own input gradient."""
    hiding = stack_of(overlap_tensor_parallel=True)
    settings = settings_of(2)
    once = 2 * 1 / 2 * STATE_BYTES
    # 2 * 48 * 32 * 48 FLOPs of qkv's, 2 * 48 * 32 * 64 of the MLP's first.
    for link, hidden in ((1e-6, 2 * 48 * 32 * (48 + 64)), (1e6, 2 * once / 1e6)):
        machine = computing(**dict.fromkeys(RATES, link))
        without, behind = (time_of(layer_time, settings, machine, stack) for stack in (None, hiding))
        assert without.total_s - behind.total_s == pytest.approx(hidden)
        assert without.forward_s == behind.forward_s
        assert without.communication_s - behind.communication_s == pytest.approx(hidden)
        # Apart, the halves of the backward have nothing to hide behind.
        assert passes(without) == passes(behind)


@pytest.mark.parametrize("recomputation", ["none", "selective", "full"])
def test_the_host_sets_the_pace_of_a_fast_chip(recomputation: Any) -> None:
    host = stack_of(host_layer_s=7.0, host_collective_s=0.5)
    machine = linking(**dict.fromkeys(RATES, 1e9))
    alone = time_of(layer_time, settings_of(recomputation=recomputation), computing(), host)
    assert not alone.host_bound
    chip = chip_of(peak=1e9, memory_bytes_per_s=math.inf)
    fast = replace(machine, chip=chip)
    again = 1 if recomputation == "full" else 0
    for ranks, floor in ((1, 7.0), (2, 8.0)):
        bound = time_of(layer_time, settings_of(ranks, recomputation=recomputation), fast, host)
        assert bound.host_bound
        assert bound.forward_s == floor
        assert bound.total_s == pytest.approx((2 + again) * floor, rel=1e-3)
        # Four of 18 launches of the backward are of weight gradients.
        assert bound.weight_grad_s == pytest.approx(4 / 18 * floor)
        assert bound.input_grad_s == pytest.approx(14 / 18 * floor + bound.recomputed_s)


def test_fused_attention_computes_nothing_more_for_selective_recomputation() -> None:
    flash = settings_of(flash_attention=True)
    both = [
        time_of(layer_time, each, computing()) for each in (flash, replace(flash, recomputation="selective"))
    ]
    assert passes(both[0]) == passes(both[1])


@st.composite
def cases(draw: st.DrawFn) -> tuple[TransformerShape, ActivationSettings, Machine, StackConstants]:
    ranks = draw(st.sampled_from([1, 2, 4, 8]))
    settings = ActivationSettings(
        micro_batch=draw(st.integers(1, 4)),
        sequence_tokens=8 * draw(st.integers(1, 300)),
        tensor_parallel=ranks,
        sequence_parallel=draw(st.booleans()),
        recomputation=draw(st.sampled_from(["none", "selective", "full"])),
        flash_attention=draw(st.booleans()),
        attention_dropout=draw(st.booleans()),
        hidden_dropout=draw(st.booleans()),
    )
    shape = draw(shapes(tensor_parallel=ranks))
    larger = {
        "hidden_size": 64 * shape.hidden_size,
        "head_dim": 16 * shape.head_dim,
        "ffn_size": 64 * shape.ffn_size,
    }
    return shape.model_copy(update=larger), settings, draw(machines()), draw(stacks())


def times_of(case: tuple[TransformerShape, ActivationSettings, Machine, StackConstants]) -> list[PartTime]:
    shape, settings, machine, stack = case
    return [part(shape, settings, roofline_of(machine), communication_of(machine, stack)) for part in TIMES]


def never_less(before: PartTime, after: PartTime) -> bool:
    """Whether no pass got shorter, apart from rounding."""
    names = ("forward_s", "input_grad_s", "weight_grad_s", "backward_s", "recomputed_s")
    return all(getattr(after, name) >= getattr(before, name) * (1 - 1e-12) for name in names)


@hypothesis.given(cases(), st.sampled_from(SLOWER))
def test_a_slower_part_of_the_machine_never_helps(case: Any, what: str) -> None:
    shape, settings, machine, stack = case
    after = times_of((shape, settings, slower(machine, what, 2), stack))
    for fast, slow in zip(times_of(case), after, strict=True):
        assert never_less(fast, slow)


@hypothesis.given(cases(), st.sampled_from([*LATENCIES, "kernel_s", "matmul_half_depth", *STACK_TIMES]))
def test_a_longer_wait_never_helps(case: Any, what: str) -> None:
    shape, settings, machine, stack = case
    if what in STACK_TIMES:
        stack = stack.model_copy(update={what: getattr(stack, what) + 1e-3})
    elif what in LATENCIES:
        machine = replace(machine, **{what: getattr(machine, what) + 1e-4})
    else:
        update = {what: getattr(machine.constants, what) + 1e-3}
        machine = replace(machine, constants=machine.constants.model_copy(update=update))
    for before, after in zip(times_of(case), times_of((shape, settings, machine, stack)), strict=True):
        assert never_less(before, after)


@hypothesis.given(cases())
def test_what_is_part_of_what(case: Any) -> None:
    shape, settings, machine, stack = case
    layer, embedding, head = times_of(case)
    for part in (layer, embedding, head):
        assert all(math.isfinite(each) and each >= 0 for each in passes(part))
        assert part.total_s == pytest.approx(part.forward_s + part.backward_s)
        # Each half alone, both in one piece, both one after the other.
        assert max(part.input_grad_s, part.weight_grad_s) <= part.backward_s * (1 + 1e-12)
        assert part.backward_s <= (part.input_grad_s + part.weight_grad_s) * (1 + 1e-12)
    assert layer.recomputed_s <= layer.input_grad_s
    computed = sum(each.forward_s for each in layer_operations(shape, settings, roofline_of(machine)))
    assert layer.forward_s >= computed * (1 - 1e-12)
    if settings.tensor_parallel == 1:
        assert layer.communication_s == embedding.communication_s == head.communication_s == 0
        assert passes(layer) == passes(
            times_of((shape, replace(settings, sequence_parallel=True), machine, stack))[0]
        )


@hypothesis.given(cases())
def test_recomputation_only_costs(case: Any) -> None:
    shape, settings, machine, stack = case
    none, selective, full = (
        times_of((shape, replace(settings, recomputation=each), machine, stack))[0]
        for each in ("none", "selective", "full")
    )
    assert none.recomputed_s == 0
    assert none.forward_s == selective.forward_s == full.forward_s
    assert none.total_s <= selective.total_s <= full.total_s
    assert full.recomputed_s == full.forward_s
    assert full.total_s == pytest.approx(none.total_s + none.forward_s)


@hypothesis.given(cases(), st.integers(2, 8))
def test_a_larger_micro_batch_takes_longer_but_no_longer_than_so_many(case: Any, times: int) -> None:
    shape, settings, machine, stack = case
    larger = replace(settings, micro_batch=times * settings.micro_batch)
    for once, many in zip(times_of(case), times_of((shape, larger, machine, stack)), strict=True):
        assert once.total_s * (1 - 1e-12) <= many.total_s <= times * once.total_s * (1 + 1e-12)
