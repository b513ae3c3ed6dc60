"""The operations as torch knows them: schemas, fake tensors, torch.compile's front end, and the fall-back."""

import copy
import importlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from dtk_kernels import attention, gemm, kv, quant
from dtk_kernels._native_module import warn_of_reference
from dtk_kernels._registry import OPERATION_PACKAGES
from tests.kernels.implementations import DIRECT

INT = torch.int32
TABLE = torch.tensor([[0, 2, -1]], dtype=INT)
QUANTIZER = {"block": (1, 16), "scale_format": "e8m0", "rounding": "nearest", "random_bits": None}

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "block_digest": ((torch.randn(3, 2, 4, 8), torch.full((3,), 4, dtype=INT)), {}),
    "block_score": (
        (torch.randn(1, 4, 8), torch.randn(3, 2, 8), torch.randn(3, 2, 8), TABLE),
        {"head_reduction": "group_max"},
    ),
    "select_blocks": ((torch.randn(1, 2, 3), 2), {"forced": torch.tensor([[False, True, False]])}),
    "sparse_decode_attention": (
        (
            torch.randn(1, 4, 8),
            torch.randn(3, 2, 4, 8).half(),
            torch.randn(3, 2, 4, 8).half(),
            TABLE[None],
            torch.full_like(TABLE, 3)[None],
        ),
        {"scale": 0.5},
    ),
    "quantized_decode_attention": (
        (
            torch.randn(1, 4, 8),
            torch.ones(3, 2, 4, 4, dtype=torch.uint8),
            torch.ones(3, 2, 4, 4, dtype=torch.uint8),
            torch.ones(3, 2, 4, 2),
            torch.ones(3, 2, 4, 2),
            TABLE[None],
            torch.full_like(TABLE, 3)[None],
        ),
        {"format": "e2m1"},
    ),
    "merge_partials": ((torch.randn(2, 3, 8), torch.randn(2, 3)), {}),
    "gather_blocks": ((torch.randn(3, 4), TABLE[0]), {}),
    "scatter_blocks_": ((torch.randn(3, 4), TABLE[0], torch.randn(3, 4)), {}),
    "copy_blocks_": ((torch.randn(3, 4), TABLE[0], torch.randn(5, 4), TABLE[0]), {}),
    "quantize": ((torch.randn(3, 20), "e2m1"), QUANTIZER | {"scale_format": "nvfp4"}),
    "dequantize": (
        (torch.ones(3, 20, dtype=torch.int8), torch.ones(3, 2), "int8"),
        {"block": (1, 16), "tensor_scale": None},
    ),
    "fake_quantize": ((torch.randn(3, 20), "e4m3"), QUANTIZER),
    "pack": ((torch.ones(3, 5, dtype=torch.uint8),), {}),
    "unpack": ((torch.ones(3, 3, dtype=torch.uint8), 5), {"signed": True}),
    "hadamard": ((torch.randn(3, 8), torch.ones(4)), {"size": 4}),
    "packed_linear": (
        (torch.randn(2, 3, 32), torch.ones(5, 16, dtype=torch.uint8), torch.ones(5, 2), "e2m1"),
        {"block_size": 16, "bias": torch.randn(5)},
    ),
    "scaled_matmul": (
        (*(torch.ones(3, 32, dtype=torch.int8), torch.ones(3, 1)) * 2, "int8", "int8"),
        {"block_size": 32},
    ),
}


def test_every_operation_is_declared_and_tested_here() -> None:
    assert CALLS.keys() == OPERATION_PACKAGES.keys()
    assert sorted(OPERATION_PACKAGES) == sorted(
        {*attention.__all__, *gemm.__all__, *kv.__all__, *quant.__all__} - {"NvScales"}
    )
    for name in OPERATION_PACKAGES:
        assert hasattr(torch.ops.dtk_kernels, name)


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name: str) -> None:
    arguments, options = CALLS[name]
    operator = getattr(torch.ops.dtk_kernels, name).default
    # opcheck reads uninitialised memory of fake results; the poison fixture's mode would complain.
    torch.use_deterministic_algorithms(False)
    results = torch.library.opcheck(operator, arguments, options)
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", CALLS)
def test_torch_operators_check_as_the_functions_do(name: str) -> None:
    arguments, options = CALLS[name]
    flat = (arguments[0].flatten(), *arguments[1:])
    if name in {"gather_blocks", "merge_partials"}:
        flat = (arguments[0], arguments[1].double())
    if OPERATION_PACKAGES[name].startswith(("dtk_kernels.quant", "dtk_kernels.gemm")):
        flat = (arguments[0].double(), *arguments[1:])
    with pytest.raises(ValueError, match="must"):
        getattr(torch.ops.dtk_kernels, name)(*flat, **options)


def test_compiled_code_calls_the_operations() -> None:
    def step(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = attention.block_digest(keys, lengths)
        table = torch.arange(keys.shape[0], dtype=INT)[None]
        chosen = attention.select_blocks(attention.block_score(query, low, high, table), 2)
        return attention.sparse_decode_attention(query, keys, values, chosen, torch.full_like(chosen, 4))

    arguments = (torch.randn(1, 4, 8), torch.randn(5, 2, 4, 8), torch.randn(5, 2, 4, 8))
    lengths = torch.full((5,), 4, dtype=INT)
    # "aot_eager" traces with fake tensors and functionalisation, without the minutes of code generation.
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*arguments, lengths), step(*arguments, lengths), rtol=0, atol=0)


def test_meta_tensors_have_the_results_shapes() -> None:
    meta = {
        name: [x.to("meta") if isinstance(x, torch.Tensor) else x for x in CALLS[name][0]] for name in CALLS
    }
    output, lse = attention.sparse_decode_attention(*meta["sparse_decode_attention"])
    assert (output.shape, lse.shape, output.dtype) == ((1, 4, 8), (1, 4), torch.float32)
    assert attention.select_blocks(*meta["select_blocks"]).shape == (1, 2, 2)
    assert kv.gather_blocks(*meta["gather_blocks"]).shape == (3, 4)


def test_without_native_the_reference_runs_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    arguments, _ = CALLS["block_digest"]
    expected = attention.block_digest(*arguments, implementation="reference")
    monkeypatch.setattr("dtk_kernels._operation.native_module", lambda: None)
    monkeypatch.setattr("dtk_kernels._native_module.why_no_native_module", lambda: "it was not built")
    warn_of_reference.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, logger="dtk_kernels"):
            for _ in range(3):
                torch.testing.assert_close(attention.block_digest(*arguments), expected, rtol=0, atol=0)
    finally:
        warn_of_reference.cache_clear()
    assert [record.getMessage() for record in caplog.records] == [
        "kernels run as their slow references: it was not built"
    ]


@pytest.fixture
def torchs_defaults() -> Iterator[None]:
    """Undo what a test makes of the defaults that the process has."""
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("torchs_defaults")
@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("name", CALLS)
def test_torchs_default_device_and_dtype_do_not_matter(name: str, implementation: str) -> None:
    """They are what a model is loaded with, often a GPU and bfloat16: results go with the arguments."""
    arguments, options = CALLS[name]
    function = importlib.import_module(OPERATION_PACKAGES[name]).OPERATION.load(implementation)
    expected = function(*copy.deepcopy(arguments), **options)
    copies = copy.deepcopy(arguments)
    torch.set_default_device("meta")
    for dtype in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        result = function(*copies, **options)
        for got, wanted in zip(tree_leaves(result), tree_leaves(expected), strict=True):
            assert got is None or (got.dtype, got.device) == (wanted.dtype, wanted.device)


@pytest.mark.native
def test_native_answers_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, _ = CALLS["gather_blocks"]
    calls = []
    monkeypatch.setattr("dtk_kernels._native.gather_blocks", lambda *views: calls.append(views))
    kv.gather_blocks(*arguments)
    assert len(calls) == 1


def test_asking_for_a_gradient_gets_torchs_warning() -> None:
    (outputs, lses), _ = CALLS["merge_partials"]
    merged, _ = attention.merge_partials(outputs.clone().requires_grad_(), lses)
    with pytest.warns(UserWarning, match="autograd kernel was not registered"):
        merged.sum().backward()


@pytest.mark.parametrize("implementation", DIRECT)
def test_quantisers_called_by_name_have_no_gradient_either(implementation: str) -> None:
    """The reference's would go through the scales alone."""
    x = torch.randn(2, 32, requires_grad=True)
    assert not quant.fake_quantize(x, "e2m1", block=(1, 16), implementation=implementation).requires_grad
    assert not quant.quantize(x, "e2m1", block=None, implementation=implementation)[1].requires_grad  # type: ignore[union-attr]
