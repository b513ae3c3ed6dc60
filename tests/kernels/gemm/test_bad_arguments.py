"""Bad arguments of the products: one clear line, the same from every implementation."""

from typing import Any

import pytest
import torch

from dtk_kernels import gemm
from tests.kernels.implementations import BOTH


def linear_arguments() -> dict[str, Any]:
    return {
        "x": torch.zeros(2, 64),
        "packed_weight": torch.zeros((5, 32), dtype=torch.uint8),
        "scales": torch.zeros(5, 2),
        "format": "e2m1",
        "block_size": 32,
        "bias": torch.zeros(5),
    }


def matmul_arguments() -> dict[str, Any]:
    return {
        "a_codes": torch.zeros((2, 64), dtype=torch.uint8),
        "a_scales": torch.zeros(2, 2),
        "b_codes": torch.zeros((5, 32), dtype=torch.uint8),
        "b_scales": torch.zeros(5, 2),
        "a_format": "e4m3",
        "b_format": "e2m1",
        "block_size": 32,
    }


# argument, wrong value, the whole message
BAD_LINEAR: list[tuple[str, Any, str]] = [
    ("x", [1.0], "x must be a tensor, got list"),
    ("x", torch.zeros(()), "x must have at least one dim, got shape []"),
    ("x", torch.zeros(2, 64).half(), "x must be float32, got float16"),
    (
        "x",
        torch.zeros(2, 96),
        "packed_weight must have 48 bytes in a row of 96 e2m1 codes, got shape [5, 32]",
    ),
    ("x", torch.zeros(2, 0), "block_size must divide the 0 elements of a row, got 32"),
    ("packed_weight", torch.zeros(5, 32), "packed_weight must be uint8, got float32"),
    (
        "packed_weight",
        torch.zeros((5, 64), dtype=torch.uint8)[:, ::2],
        "packed_weight must be contiguous in its last dim, got strides (64, 2)",
    ),
    (
        "packed_weight",
        torch.zeros((4, 32), dtype=torch.uint8),
        "scales has shape [5, 2]: dim 0 (rows) must be 4 as in packed_weight, got 5",
    ),
    ("scales", torch.zeros(5, 2).bfloat16(), "scales must be float32 or float8_e8m0fnu, got bfloat16"),
    (
        "scales",
        torch.zeros(5, 3),
        "scales must have 2 in a row, one for each 32 elements, got shape [5, 3]",
    ),
    ("scales", torch.zeros(5), "scales must have shape [rows, blocks], got [5]"),
    ("format", "e4m3", "format must be one of e2m1, int8, got 'e4m3'"),
    ("format", None, "format must be one of e2m1, int8, got None"),
    ("format", "int8", "packed_weight must be int8, got uint8"),
    ("block_size", 48, "block_size must divide the 64 elements of a row, got 48"),
    ("block_size", 8, "block_size must be a multiple of 16 or the whole row (64), got 8"),
    ("block_size", 0, "block_size must be at least 1, got 0"),
    ("bias", torch.zeros(4), "bias must have shape [5], one for each row of packed_weight, got [4]"),
    ("bias", torch.zeros(5).double(), "bias must be float32, got float64"),
]
BAD_MATMUL: list[tuple[str, Any, str]] = [
    ("a_codes", None, "a_codes must be a tensor, got NoneType"),
    (
        "a_format",
        "fp8",
        "a_format must be one of e2m1, e4m3, e5m2, e3m2, e2m3, int8, int4, got 'fp8'",
    ),
    ("a_format", "int8", "a_codes must be int8, got uint8"),
    ("a_scales", torch.zeros(2), "a_scales must have shape [rows, blocks], got [2]"),
    (
        "a_scales",
        torch.zeros(2, 2).double(),
        "a_scales must be float32 or bfloat16 or float8_e8m0fnu or float8_e4m3fn, got float64",
    ),
    ("b_scales", torch.zeros(5, 1), "b_scales must have 2 in a row as a_scales, got shape [5, 1]"),
    (
        "b_codes",
        torch.zeros((5, 64), dtype=torch.uint8),
        "b_codes must have 32 bytes in a row of 64 e2m1 codes, got shape [5, 64]",
    ),
    ("block_size", 8, "block_size must be a multiple of 16 or the whole row (16), got 8"),
    ("block_size", None, "block_size must be an integer, got None"),
    ("block_size", 0, "block_size must be at least 1, got 0"),
    (
        "b_format",
        ["e2m1"],
        "b_format must be one of e2m1, e4m3, e5m2, e3m2, e2m3, int8, int4, got ['e2m1']",
    ),
]


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize(("argument", "value", "message"), BAD_LINEAR)
def test_packed_linear(argument: str, value: Any, message: str, implementation: str | None) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        gemm.packed_linear(**linear_arguments() | {argument: value}, implementation=implementation)
    assert str(raised.value) == message


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize(("argument", "value", "message"), BAD_MATMUL)
def test_scaled_matmul(argument: str, value: Any, message: str, implementation: str | None) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        gemm.scaled_matmul(**matmul_arguments() | {argument: value}, implementation=implementation)
    assert str(raised.value) == message


def test_good_arguments_pass() -> None:
    assert gemm.packed_linear(**linear_arguments()).shape == (2, 5)
    assert gemm.scaled_matmul(**matmul_arguments()).shape == (2, 5)
