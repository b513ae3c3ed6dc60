"""The checks, in Triton's interpreter: they pass on the kernels as they are and fail on broken ones."""

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from dtk_kernels import attention, kv, quant
from dtk_kernels._registry import IMPLEMENTATION_MODULES, OPERATION_PACKAGES
from dtk_kernels.gpu_bench.answers import exact_attention, exact_merge, exact_scores
from dtk_kernels.gpu_bench.checks import ON_A_GPU, Check, Sizes, run_checks

pytestmark = [
    pytest.mark.interp,
    pytest.mark.usefixtures("_interpreted"),
    # Quantisers get NaN and Inf, of which the interpreter warns through numpy.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

CPU = torch.device("cpu")
TRITON = IMPLEMENTATION_MODULES["triton"]
TINY = Sizes(
    dtypes=("fp16", "fp32"),
    attention=((16, 4, 2), (24, 3, 1)),
    batch=2,
    num_kv_heads=2,
    num_blocks=5,
)
ONE = replace(TINY, dtypes=("fp32",), attention=((16, 4, 2),))


def test_every_operation_is_checked_and_right() -> None:
    results = list(run_checks(CPU, TINY))
    caches = {
        name
        for name, package in OPERATION_PACKAGES.items()
        if package.split(".")[1] in {"attention", "kv", "quant"}
    }
    written = {name for name in caches if importlib.util.find_spec(f"{OPERATION_PACKAGES[name]}.{TRITON}")}
    assert {result.operation for result in results} == written
    assert [result for result in results if not result.ok] == []
    assert all(result.error <= result.tolerance for result in results)


def test_on_a_gpu_every_dtype_and_every_timed_tile_is_checked() -> None:
    assert set(ON_A_GPU.dtypes) == {"bf16", "fp16", "fp32"}
    timed = {(128, block_size, group_size) for block_size in (16, 32, 64) for group_size in (1, 4, 8)}
    assert timed <= set(ON_A_GPU.attention)


def slightly_wrong(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its first result off by 4e-4, or by one if it is integers."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) else result
        first.add_(1) if first.dtype == torch.int32 else first.mul_(1 + 4e-4)
        return result

    return broken


@pytest.mark.parametrize(
    "operation",
    [
        "sparse_decode_attention",
        "quantized_decode_attention",
        "block_score",
        "merge_partials",
        "select_blocks",
    ],
)
def test_a_kernel_that_is_a_little_wrong_is_found(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, operation, slightly_wrong(getattr(attention, operation)))
    results = list(run_checks(CPU, ONE))
    assert {result.operation for result in results if not result.ok} == {operation}


@pytest.mark.parametrize("operation", ["fake_quantize", "unpack"])
def test_a_quantiser_with_a_wrong_bit_is_found(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(quant, operation)

    def broken(*args: Any, implementation: str, **kwargs: Any) -> Any:
        result = right(*args, implementation=implementation, **kwargs)
        if implementation == "triton":
            first = result[0] if isinstance(result, tuple) else result
            first.view(torch.uint8).flatten()[-first.element_size()].bitwise_xor_(1)
        return result

    monkeypatch.setattr(quant, operation, broken)
    results = list(run_checks(CPU, ONE))
    assert {result.operation for result in results if not result.ok} == {operation}


def test_a_kernel_that_moves_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "scatter_blocks_", lambda *args, **kwargs: None)
    assert {result.operation for result in run_checks(CPU, ONE) if not result.ok} == {"scatter_blocks_"}


def test_a_kernel_that_does_not_run_is_wrong_and_the_rest_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no such instruction\nmore about it")

    monkeypatch.setattr(attention, "block_digest", fails)
    results = list(run_checks(CPU, ONE))
    wrong = [result for result in results if not result.ok]
    found = Check("block_digest", "RuntimeError: no such instruction", False, math.inf, 0.0)
    assert wrong == [found]
    assert len(results) == 37


def test_exact_attention_by_hand() -> None:
    keys = torch.tensor([[[[1.0], [2.0]]], [[[3.0], [math.nan]]]])
    values = 10 * keys
    table = torch.tensor([[[1, -1, 0]], [[-1, -1, -1]]], dtype=torch.int32)
    lengths = torch.tensor([[[1, 2, 2]], [[1, 1, 1]]], dtype=torch.int32)
    output, lse = exact_attention(torch.tensor([[[0.5]], [[1.0]]]), keys, values, table, lengths)
    weights = [math.exp(0.5 * key) for key in (3, 1, 2)]
    wanted = (30 * weights[0] + 10 * weights[1] + 20 * weights[2]) / sum(weights)
    assert output.flatten().tolist() == pytest.approx([wanted, 0.0])
    assert lse.flatten().tolist() == pytest.approx([math.log(sum(weights)), -math.inf])


def test_exact_scores_and_merge_by_hand() -> None:
    low, high = torch.tensor([[[-1.0, -2.0]]]), torch.tensor([[[3.0, 5.0]]])
    query = torch.tensor([[[2.0, -1.0], [-1.0, 1.0]]])
    table = torch.tensor([[0, -1]], dtype=torch.int32)
    by_head = [2 * 3 + -1 * -2, -1 * -1 + 1 * 5]
    for reduction, wanted in (
        ("layer", sum(by_head)),
        ("group_sum", sum(by_head)),
        ("group_max", max(by_head)),
    ):
        scores = exact_scores(query, low, high, table, reduction)  # type: ignore[arg-type]
        assert scores.flatten().tolist() == [wanted, -math.inf]
    output, lse = exact_merge(
        torch.tensor([[[1.0]], [[4.0]], [[math.nan]]]), torch.tensor([[0.0], [math.log(2)], [-math.inf]])
    )
    assert output.item() == pytest.approx(3.0)
    assert lse.item() == pytest.approx(math.log(3))
