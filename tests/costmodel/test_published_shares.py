"""What chips reach, against figures printed elsewhere: nothing here was fitted to them."""

import math
from dataclasses import replace
from typing import Any

import pytest

from dtk.costmodel.collectives import Communication
from dtk.costmodel.constants import chip_constants, stack_constants
from dtk.costmodel.layer import layer_time
from dtk.costmodel.machine import machine_of
from dtk.costmodel.measurements import LayerProfile, sailor_layer_profiles
from dtk.costmodel.placement import place_group
from dtk.costmodel.roofline import Roofline
from dtk.hardware.catalogue import packaged_catalogue
from dtk.workload.activations import ActivationSettings
from tests.costmodel.machines import chip_of, communication_of, machine_of_figures, roofline_of, stack_of
from tests.workload.shapes import gpt

CHIPS = packaged_catalogue()

BEST_PRODUCTS = {
    # m, n, k and TFLOP/s in bf16: the best of many sizes, stas00/ml-engineering, compute/accelerator.
    "H100-SXM-80GB": (2048, 2048, 13312, 794.5),
    "B200-SXM-180GB": (1792, 16128, 3072, 1745.0),
    "GH200-96GB": (1024, 15360, 4096, 828.6),
    "MI300X": (10240, 15360, 8192, 668.4),
    "A100-SXM-80GB": (1024, 10240, 5120, 271.2),
}


@pytest.mark.parametrize("name", BEST_PRODUCTS)
def test_the_best_published_products_are_bounds(name: str) -> None:
    """The model is a little slower at that very size, since it is no lucky one."""
    m, n, k, rate = BEST_PRODUCTS[name]
    roofline = Roofline(CHIPS.chip(name), chip_constants(name), "bf16", 2)
    found = 2 * m * n * k / roofline.matmul_s(m, n, k) / 1e12
    assert 0.7 * rate < found < 1.01 * rate
    # A hundred such products in one kernel: what starting a kernel takes is gone.
    assert 0.87 * rate < 100 * 2 * m * n * k / roofline.matmul_s(m, n, k, 100) / 1e12 < 1.01 * rate


def test_copies_and_messages_reach_what_was_printed() -> None:
    h100 = Roofline(CHIPS.chip("H100"), chip_constants("H100-SXM-80GB"), "bf16", 2)
    # Of copies larger than its L2, not of those that it holds in part.
    assert 2495e9 < 1e12 / h100.stream_s(1e12) < 2534e9
    silent = Communication(machine_of("DGX-H100x1"), stack_of())
    assert 1e12 / silent.transfer_s(1e12, crosses_nodes=False) == pytest.approx(380e9, rel=6e-3)


@pytest.mark.parametrize(
    ("cluster", "collective", "gb_per_s"),
    [
        ("DGX-H100x4", "all_reduce", 330.93),
        ("DGX-H100x4", "all_gather", 323.53),
        ("8xMI300Xx1", "all_reduce", 312.912),
    ],
)
def test_large_collectives_reach_what_was_printed(cluster: str, collective: Any, gb_per_s: float) -> None:
    """Bus bandwidth as nccl-tests count it: what a rank's data would cross a ring's link with."""
    machine = machine_of(cluster)
    ranks, size_bytes = machine.num_chips, 4 * 2.0**40
    group = place_group(machine, ranks, 1)
    time_s = Communication(machine, stack_of()).collective_s(collective, size_bytes, group)
    factor = (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks
    assert factor * size_bytes / time_s / 1e9 == pytest.approx(gb_per_s, rel=0.015)


def test_fused_attention_on_hopper_is_the_second_of_its_kind() -> None:
    h100, a100 = (
        Roofline(CHIPS.chip(name), chip_constants(name), "bf16", 2)
        for name in ("H100-SXM-80GB", "A100-SXM-80GB")
    )
    # 35 % of 989 TFLOP/s, and 50 to 65 % of 312: hardly twice as fast, where products are three times.
    assert 1.7 < a100.attention_s(1e15, 0) / h100.attention_s(1e15, 0) < 2.3
    assert a100.matmul_s(8192, 8192, 8192) / h100.matmul_s(8192, 8192, 8192) > 2.9


SINGLE_CARDS = [
    each
    for each in sailor_layer_profiles()
    if each.part == "layer" and each.tensor_parallel == 1 and each.micro_batch >= 2
]


@pytest.mark.parametrize(
    "entry",
    [each for each in SINGLE_CARDS if CHIPS.chip(each.chip).peak_flop_per_s.tf32 is None],
    ids=lambda each: f"{each.chip} {each.micro_batch}",
)
def test_forward_passes_of_cards_without_tensor_float_32(entry: LayerProfile) -> None:
    """V100, Titan RTX and RTX 2080 Ti in fp32, as SAILOR measured them."""
    roofline = Roofline(CHIPS.chip(entry.chip), chip_constants(entry.chip), "fp32", 4)
    settings = ActivationSettings(
        entry.micro_batch,
        entry.sequence_tokens,
        attention_dropout=False,
        hidden_dropout=False,
        element_bytes=4,
    )
    alone = Communication(machine_of("DGX-A100x1"), stack_of())
    assert layer_time(entry.shape, settings, roofline, alone).forward_s == pytest.approx(
        entry.forward_s, rel=0.13
    )


def test_torchs_eager_operations_read_and_write_more_often() -> None:
    fused, eager = stack_constants("torch-fsdp2"), stack_constants("torch-fsdp2-eager")
    assert (fused.stream_factor, eager.fitted) == (1.0, ("stream_factor",))
    assert 2 < eager.stream_factor < 5
    changed = {"name", "stream_factor", "origins"}
    assert fused.model_dump(exclude=changed) == eager.model_dump(exclude=changed)


@pytest.mark.parametrize("flash", [True, False])
def test_every_second_product_is_computed_again(flash: bool) -> None:
    """As torchtitan recomputes: half of the products and all between them, but not fused attention."""
    settings = ActivationSettings(2, 24, recomputation="selective", flash_attention=flash)
    machine = machine_of_figures(chip=chip_of(memory_bytes_per_s=math.inf))
    found = layer_time(
        gpt(), settings, roofline_of(machine), communication_of(machine, stack_of(selective_products=0.5))
    )
    products, core = 2 * 48 * 12 * 32**2, 2 * (2 * 2 * 24 * 24 * 32)
    assert found.recomputed_s == products / 2 + (0 if flash else core)


def test_operations_that_are_done_over() -> None:
    machine = machine_of_figures()
    once = roofline_of(machine)
    thrice = replace(once, stream_factor=3.0)
    assert thrice.stream_s(100.0, 2) == 3 * once.stream_s(100.0, 2)
    assert thrice.matmul_s(5, 6, 7) == once.matmul_s(5, 6, 7)
    assert thrice.attention_s(5, 6) == once.attention_s(5, 6)


def test_the_published_slow_down_is_that_of_all_software() -> None:
    for name in ("megatron", "megatron-overlapped", "torch-fsdp2", "torch-fsdp2-eager"):
        assert stack_constants(name).overlap_slowdown == 0.189
        assert stack_constants(name).origins["overlap_slowdown"].origin == "published"
