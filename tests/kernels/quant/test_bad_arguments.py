"""What callers get wrong: one clear error that names the argument."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dtk_kernels import quant

X = torch.ones(4, 40)
BITS = torch.zeros(4, 40, dtype=torch.int32)
CODES, SCALES = torch.ones(4, 40, dtype=torch.uint8), torch.ones(4, 3)


def stochastic(bits: Any) -> dict[str, Any]:
    return {"block": None, "rounding": "stochastic", "random_bits": bits}


QUANTIZER_MISTAKES: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((X, "e2m2"), {"block": None}, ValueError, "format must be one of e2m1, .*nvfp4, got 'e2m2'"),
    ((X, "e2m2"), {}, ValueError, "format must be one of"),
    ((X, 4), {"block": None}, TypeError, "format must be a string, got int"),
    ((X, "e2m1"), {}, TypeError, "block is required for format 'e2m1'; only mxfp4, nvfp4 have one"),
    ((X, "e2m1"), {"block": 32}, ValueError, r"block must be None or a pair \(rows, columns\), got 32"),
    ((X, "e2m1"), {"block": (1, 2, 3)}, ValueError, "block must be None or a pair"),
    ((X, "e2m1"), {"block": (1, 0)}, ValueError, "block must be at least 1, got 0"),
    ((X, "e2m1"), {"block": (1, 2.0)}, TypeError, "block must be an integer, got 2.0"),
    ((X, "e2m1"), {"block": (1, True)}, TypeError, "block must be an integer, got True"),
    ((X, ["e2m1"]), {"block": None}, TypeError, "format must be a string, got list"),
    ((X, "e2m1"), {"block": None, "scale_format": ["fp32"]}, ValueError, "scale_format must be one of fp32"),
    ((X, "e2m1"), {"block": None, "rounding": None}, ValueError, "rounding must be one of .* got None"),
    ((X, "e2m1"), {"block": None, "implementation": ["native"]}, ValueError, "implementation must be one of"),
    ((X, "e2m1"), {"block": (65537, 1)}, ValueError, "block must have at most 65536 rows .* got 65537"),
    ((X, "mxfp4"), {"block": (1, 16)}, ValueError, r"block must be \(1, 32\) or left out .*'mxfp4'"),
    ((X, "nvfp4"), {"block": None}, ValueError, "block must be .* got None"),
    (
        (X, "mxfp4"),
        {"scale_format": "fp32"},
        ValueError,
        "scale_format must be e8m0 or .*'mxfp4', got 'fp32'",
    ),
    ((X, "e2m1"), {"block": None, "scale_format": "e4m3"}, ValueError, "scale_format must be one of fp32"),
    ((X, "e2m1"), {"block": None, "rounding": "up"}, ValueError, "rounding must be one of nearest, stoch"),
    (
        (X.double(), "e2m1"),
        {"block": None},
        ValueError,
        "x must be float32 or float16 or bfloat16, got float64",
    ),
    ((torch.ones(()), "e2m1"), {"block": None}, ValueError, r"x must have at least one dim, got shape \[\]"),
    (([1.0], "e2m1"), {"block": None}, TypeError, "x must be a tensor, got list"),
    (
        (X.to_sparse(), "e2m1"),
        {"block": None},
        ValueError,
        "x must be a dense tensor, got a tensor of layout",
    ),
    ((X, "e2m1"), {"block": None, "random_bits": BITS}, ValueError, "random_bits must be None for rounding"),
    ((X, "e2m1"), stochastic(None), ValueError, "random_bits is required for rounding 'stochastic'"),
    ((X, "e2m1"), stochastic(BITS[:3]), ValueError, r"random_bits must have the shape of x \(\[4, 40\]\)"),
    ((X, "e2m1"), stochastic(BITS.flatten()), ValueError, "random_bits must have the shape of x"),
    ((X, "e2m1"), stochastic(BITS.long()), ValueError, "random_bits must be int32, got int64"),
    ((X, "e2m1"), stochastic([1]), TypeError, "random_bits must be a tensor, got list"),
    ((X, "e2m1"), stochastic(BITS.to("meta")), ValueError, "random_bits must be on the device of x"),
    ((X, "e2m1"), {"block": None, "implementation": "cuda"}, ValueError, "implementation must be one of"),
]


@pytest.mark.parametrize("function", [quant.quantize, quant.fake_quantize])
@pytest.mark.parametrize("implementation", ["reference", None])
@pytest.mark.parametrize(("arguments", "options", "error", "text"), QUANTIZER_MISTAKES)
def test_quantizers(
    function: Callable[..., Any],
    implementation: str | None,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        function(*arguments, **{"implementation": implementation, **options})


OTHER_MISTAKES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (quant.dequantize, (CODES, SCALES, "fp4"), {"block": (1, 16)}, "format must be one of"),
    (quant.dequantize, (CODES.char(), SCALES, "e2m1"), {"block": (1, 16)}, "codes must be uint8, got int8"),
    (quant.dequantize, (CODES, SCALES, "int4"), {"block": (1, 16)}, "codes must be int8, got uint8"),
    (
        quant.dequantize,
        (CODES, SCALES, "e2m1"),
        {"block": (1, 32)},
        r"scales must have shape \[4, 2\] for codes of shape \[4, 40\] and their block, got \[4, 3\]",
    ),
    (quant.dequantize, (CODES, SCALES, "e2m1"), {"block": None}, r"scales must have shape \[\]"),
    (
        quant.dequantize,
        (CODES, SCALES.half(), "e2m1"),
        {"block": (1, 16)},
        "scales must be float32 or bfloat16",
    ),
    (
        quant.dequantize,
        (CODES, SCALES, "nvfp4"),
        {},
        "scales must be float8_e4m3fn for format 'nvfp4', got float32",
    ),
    (
        quant.dequantize,
        (CODES, SCALES.to(torch.float8_e4m3fn), "nvfp4"),
        {},
        "scales of dtype float8_e4m3fn must come with the tensor's scale, as NvScales",
    ),
    (
        quant.dequantize,
        (CODES, quant.NvScales(SCALES.to(torch.float8_e4m3fn), torch.ones(1)), "nvfp4"),
        {},
        r"scales.tensor must have shape \[\], got \[1\]",
    ),
    (
        quant.dequantize,
        (CODES, quant.NvScales(SCALES, torch.ones(())), "e2m1"),
        {"block": (1, 16)},
        "scales must be float8_e4m3fn, got float32",
    ),
    (
        quant.dequantize,
        (CODES, SCALES.to("meta"), "e2m1"),
        {"block": (1, 16)},
        "scales must be on the device",
    ),
    (quant.pack, (torch.ones(3),), {}, "codes must be uint8 or int8, got float32"),
    (quant.pack, (torch.ones((), dtype=torch.uint8),), {}, "codes must have at least one dim"),
    (quant.unpack, (CODES.char(), 80), {}, "packed must be uint8, got int8"),
    (quant.unpack, (CODES, 78), {}, r"count must be 80 or one less for packed of shape \[4, 40\], got 78"),
    (quant.unpack, (CODES, 81), {}, "count must be 80 or one less"),
    (quant.unpack, (CODES, -1), {}, "count must be at least 0, got -1"),
    (quant.hadamard, (X, torch.ones(3)), {"size": 3}, "size must be a power of two, at most 4096, got 3"),
    (quant.hadamard, (X, torch.ones(8192)), {"size": 8192}, "size must be a power of two, at most 4096"),
    (quant.hadamard, (X, torch.ones(1)), {"size": 0}, "size must be at least 1, got 0"),
    (quant.hadamard, (X, torch.ones(16)), {"size": 16}, r"size must divide the last dim of x \(40\), got 16"),
    (quant.hadamard, (X, torch.ones(4)), {"size": 8}, r"signs must have shape \[8\], got \[4\]"),
    (quant.hadamard, (X, torch.ones(8).half()), {"size": 8}, "signs must be float32, got float16"),
    (quant.hadamard, (CODES, torch.ones(8)), {"size": 8}, "x must be float32 or"),
]


@pytest.mark.parametrize("implementation", ["reference", None])
@pytest.mark.parametrize(("function", "arguments", "options", "text"), OTHER_MISTAKES)
def test_the_others(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    text: str,
    implementation: str | None,
) -> None:
    with pytest.raises(ValueError, match=text):
        function(*arguments, implementation=implementation, **options)


WRONG_TYPES: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (
        quant.dequantize,
        (CODES, [1.0], "e2m1"),
        {"block": None},
        "scales must be a tensor or NvScales, got list",
    ),
    (quant.dequantize, (CODES, (SCALES, 1.0), "nvfp4"), {}, "scales must be a tensor or NvScales, got tuple"),
    (
        quant.dequantize,
        (CODES, quant.NvScales(SCALES, 1.0), "nvfp4"),  # type: ignore[arg-type]
        {},
        "scales.tensor must be a tensor, got float",
    ),
    (quant.unpack, (CODES, 80.0), {}, "count must be an integer, got 80.0"),
    (quant.unpack, (CODES, 80), {"signed": "no"}, "signed must be True or False, got 'no'"),
    (
        quant.hadamard,
        (X, torch.ones(8)),
        {"size": 8, "inverse": "x"},
        "inverse must be True or False, got 'x'",
    ),
]


@pytest.mark.parametrize("implementation", ["reference", None])
@pytest.mark.parametrize(("function", "arguments", "options", "text"), WRONG_TYPES)
def test_wrong_types(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    text: str,
    implementation: str | None,
) -> None:
    with pytest.raises(TypeError, match=text):
        function(*arguments, implementation=implementation, **options)
