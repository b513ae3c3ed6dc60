"""The roofline by hand, and which way each figure of it pulls."""

import math

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.costmodel.machine import Machine
from dtk.costmodel.roofline import Roofline
from dtk.errors import InputError
from dtk.hardware.catalogue import packaged_catalogue
from tests.costmodel.machines import chip_of, constants_of, machine_of_figures, machines, roofline_of, slower

sizes = st.floats(1, 1e6)


def of(peak: float = math.inf, memory: float = math.inf, element_bytes: int = 2, **shares: float) -> Roofline:
    chip = chip_of(peak=peak, memory_bytes_per_s=memory)
    return roofline_of(machine_of_figures(chip=chip, constants=constants_of(**shares)), element_bytes)


def test_products_at_the_peak() -> None:
    assert of(peak=10).matmul_s(2, 3, 5) == 2 * 2 * 3 * 5 / 10
    assert of(peak=10).matmul_s(2, 3, 5, 7) == 7 * 2 * 2 * 3 * 5 / 10
    assert of(peak=10, matmul_share=0.5).matmul_s(2, 3, 5) == 2 * 2 * 3 * 5 / 5


def test_half_of_the_rate_at_the_half_depth() -> None:
    deep, shallow = of(peak=10), of(peak=10, matmul_half_depth=64)
    assert shallow.matmul_s(2, 3, 64) == 2 * deep.matmul_s(2, 3, 64)
    assert shallow.matmul_s(2, 3, 192) == pytest.approx(deep.matmul_s(2, 3, 192) * 4 / 3)


def test_products_at_the_memory_s_rate() -> None:
    assert of(memory=10).matmul_s(2, 3, 5) == 2 * (2 * 5 + 5 * 3 + 2 * 3) / 10
    assert of(memory=10, element_bytes=4, memory_share=0.5).matmul_s(2, 3, 5, 7) == 7 * 4 * 31 / 5


def test_the_slower_of_both_and_the_launch() -> None:
    assert of(peak=60, memory=62).matmul_s(2, 3, 5) == 1
    assert of(peak=30, memory=62).matmul_s(2, 3, 5) == 2
    assert of(peak=60, memory=31).matmul_s(2, 3, 5) == 2
    assert of(peak=60, memory=62, kernel_s=0.25).matmul_s(2, 3, 5) == 1.25


def test_attention_and_streams() -> None:
    assert of(peak=10, attention_share=0.5).attention_s(30, 1e9) == 6
    assert of(memory=10, attention_share=0.5, memory_share=0.5).attention_s(30, 20) == 4
    assert of(peak=10, memory=10, kernel_s=1).attention_s(30, 20) == 4
    # The share of products is none of attention's.
    assert of(peak=10, matmul_share=0.1).attention_s(30, 1) == 3
    assert of(memory=10, memory_share=0.5).stream_s(20) == 4
    assert of(memory=10, kernel_s=1).stream_s(20, 3) == 5


@hypothesis.given(
    machines(),
    sizes,
    sizes,
    sizes,
    st.sampled_from(["peak", "memory_bytes_per_s", "matmul_share", "attention_share", "memory_share"]),
)
def test_a_slower_chip_never_helps(machine: Machine, m: float, n: float, k: float, what: str) -> None:
    fast, slow = roofline_of(machine), roofline_of(slower(machine, what, 2))
    assert slow.matmul_s(m, n, k) >= fast.matmul_s(m, n, k)
    assert slow.attention_s(m * n * k, m * n) >= fast.attention_s(m * n * k, m * n)
    assert slow.stream_s(m * n) >= fast.stream_s(m * n)


@hypothesis.given(machines(), sizes, sizes, sizes, sizes)
def test_larger_products_take_longer(machine: Machine, m: float, n: float, k: float, more: float) -> None:
    roofline = roofline_of(machine)
    once = roofline.matmul_s(m, n, k)
    assert roofline.matmul_s(m + more, n, k) >= once
    assert roofline.matmul_s(m, n + more, k) >= once
    assert roofline.matmul_s(m, n, k + more) >= once * (1 - 1e-12)
    # Rows and columns are alike.
    assert roofline.matmul_s(n, m, k) == pytest.approx(once)
    # One kernel of many never takes longer than many kernels.
    assert roofline.matmul_s(m, n, k, 5) <= 5 * once * (1 + 1e-12)


@hypothesis.given(machines(), sizes, sizes, sizes)
def test_no_product_is_above_the_peak(machine: Machine, m: float, n: float, k: float) -> None:
    reached = 2 * m * n * k / roofline_of(machine).matmul_s(m, n, k)
    assert reached <= machine.chip.peak("bf16") * machine.constants.matmul_share * (1 + 1e-9)


def test_a_chip_without_the_precision() -> None:
    chip = packaged_catalogue().chip("V100-SXM-32GB")
    roofline = Roofline(chip, constants_of(), "bf16", 2)
    with pytest.raises(InputError, match=r"precision: V100-SXM-32GB has no such rate \(got 'bf16'\)"):
        roofline.matmul_s(1, 1, 1)
