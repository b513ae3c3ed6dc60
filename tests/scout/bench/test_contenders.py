"""Every contender is right on small odd shapes, and a wrong answer is told from a right one."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from dtk.scout.bench import llama_cpp
from dtk.scout.bench.case import Case, make_case, make_key_values, oracle
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.contender import OUR_TOLERANCE, relative_error
from dtk.scout.bench.llama_cpp import LlamaCppUnavailableError
from dtk.scout.bench.ours import OurKernel
from dtk.scout.bench.peers import OURS, TORCH_BEST_OF, llama_cpp_contender, our_contenders, torch_contenders

CONFIG = KernelBenchConfig(
    batch=2, kv_heads=3, head_dim=24, selected_tokens=77, context_tokens=200, block_size=16
)


def small_case(dtype: str, group_size: int) -> Case:
    generator = torch.Generator().manual_seed(0)
    return make_case(make_key_values(CONFIG, dtype, generator), dtype, group_size, generator)


def expected_output(case: Case) -> torch.Tensor:
    return oracle(case.query, case.kv.gathered_keys, case.kv.gathered_values)


@pytest.mark.native
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("group_size", [1, 5])
def test_all_agree_with_float64(dtype: str, group_size: int) -> None:
    case = small_case(dtype, group_size)
    with OurKernel(1) as kernel:
        contenders = [*our_contenders(case, kernel), *torch_contenders(case)]
        errors = {one.name: relative_error(one.run(), expected_output(case)) for one in contenders}
    assert {OURS, "dtk_inline", "torch_gather_sdpa"} <= errors.keys()
    assert set(TORCH_BEST_OF) <= errors.keys() or group_size == 1
    assert all(errors[one.name] <= one.tolerance for one in contenders), errors


@pytest.mark.native
def test_the_callers_thread_takes_part_only_where_it_is_the_only_one() -> None:
    with OurKernel(2) as kernel:
        assert [one.name for one in our_contenders(small_case("fp32", 1), kernel)] == [OURS]


@pytest.mark.native
def test_one_token_left_out_is_a_wrong_answer() -> None:
    case = small_case("fp32", 2)
    shorter = case.kv.block_lengths.clone()
    shorter[0, 0, -1] -= 1
    with OurKernel(1) as kernel:
        contender = our_contenders(replace(case, kv=replace(case.kv, block_lengths=shorter)), kernel)[0]
        assert relative_error(contender.run(), expected_output(case)) > OUR_TOLERANCE


def test_nan_is_never_right() -> None:
    assert relative_error(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0])) == float("inf")


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("group_size", [1, 4])
def test_llama_cpp_agrees_with_float64_where_it_is_installed(dtype: str, group_size: int) -> None:
    try:
        folder = llama_cpp.library_folder()
    except LlamaCppUnavailableError as error:
        pytest.skip(f"llama_cpp is {error}")
    case = small_case(dtype, group_size)
    with ExitStack() as stack:
        contender = llama_cpp_contender(case, 2, folder, stack)
        for _ in range(2):
            assert relative_error(contender.run(), expected_output(case)) <= contender.tolerance
