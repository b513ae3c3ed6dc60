"""The compiled quantisers against the reference, bit for bit, on rows long enough for all of their paths."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels import quant
from dtk_kernels.formats import FORMATS, SCALE_FORMATS

pytestmark = pytest.mark.native

Block = tuple[int | None, int | None] | None

# Whole vectors and parts of them, one step of a vector loop and several, more than a tile.
BLOCK_COLUMNS = st.sampled_from([None, 1, 5, 16, 17, 32, 48, 64, 128, 130, 256, 2050])
BLOCKS = st.none() | st.tuples(st.sampled_from([None, 1, 1, 1, 2, 32]), BLOCK_COLUMNS)
COLUMNS = st.sampled_from([1, 31, 64, 100, 128, 256, 400, 528, 2048, 2049, 4300])
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])


@st.composite
def matrices(draw: st.DrawFn) -> torch.Tensor:
    """Rows of numbers whose size differs from block to block, some not finite, perhaps apart in memory."""
    rows, columns = draw(st.sampled_from([1, 2, 7, 33])), draw(COLUMNS)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    exponents = torch.randint(-draw(st.integers(0, 130)), 8, (rows, columns // 16 + 1), generator=generator)
    scale = (2.0**exponents).repeat_interleave(16, dim=1)[:, :columns]
    x = torch.randn(rows, columns, generator=generator) * scale
    x[torch.rand(rows, columns, generator=generator) < draw(st.sampled_from([0.0, 0.5]))] = -0.0
    for value in draw(st.lists(st.sampled_from([float("nan"), float("inf"), -float("inf")]), max_size=2)):
        x[draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))] = value
    x = x.to(draw(DTYPES))
    layout = draw(st.sampled_from(["dense", "apart", "stacked", "turned"]))
    if layout == "apart":
        return torch.cat([x, x], dim=1)[:, :columns]
    if layout == "stacked":
        return torch.stack([x, x.flip(0)]).transpose(0, 1)
    return x.t().contiguous().t() if layout == "turned" else x


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor; NaNs, whose sign says nothing, are all alike."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    same = tensor.isnan().logical_not() if tensor.is_floating_point() and tensor.element_size() > 1 else None
    result = tensor.view(integers[tensor.element_size()])
    return result if same is None else torch.where(same, result, -1)


def assert_same_bits(computed: torch.Tensor, expected: torch.Tensor) -> None:
    assert (computed.dtype, computed.shape) == (expected.dtype, expected.shape)
    assert torch.equal(bits(computed), bits(expected))


def tensors_of(result: Any) -> list[torch.Tensor]:
    """All tensors of a result, which may be nested."""
    if isinstance(result, torch.Tensor):
        return [result.detach()]
    return [tensor for part in result for tensor in tensors_of(part)]


def arguments_of(x: torch.Tensor, block: Block, scale_format: str, stochastic: bool) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(7)
    random_bits = torch.randint(-(2**31), 2**31, x.shape, generator=generator).to(torch.int32)
    rounding = {"rounding": "stochastic", "random_bits": random_bits} if stochastic else {}
    return {"block": block, "scale_format": scale_format, **rounding}


@settings(max_examples=500)
@given(
    x=matrices(),
    name=st.sampled_from(list(FORMATS)),
    block=BLOCKS,
    scale_format=st.sampled_from(SCALE_FORMATS),
    stochastic=st.booleans(),
)
def test_quantised_bits(
    x: torch.Tensor, name: str, block: Block, scale_format: str, stochastic: bool
) -> None:
    arguments = arguments_of(x, block, scale_format, stochastic)
    codes, scales = native = quant.quantize(x, name, **arguments, implementation="native")
    reference = quant.quantize(x, name, **arguments, implementation="reference")
    for computed, wanted in zip(tensors_of(native), tensors_of(reference), strict=True):
        assert_same_bits(computed, wanted)
    values = quant.dequantize(codes, scales, name, block=block, implementation="native")
    expected = quant.dequantize(codes, scales, name, block=block, implementation="reference")
    assert_same_bits(values, expected)
    fake = quant.fake_quantize(x, name, **arguments, implementation="native")
    assert_same_bits(fake, expected.to(x.dtype))


LAYOUTS = {
    "rows repeated": lambda x: x[:1, :1].expand(3, 4, 50),
    "columns repeated": lambda x: x[..., :1].expand(6, 7, 50),
    "matrices repeated": lambda x: x[0].expand(5, 7, 50),
    "rows and matrices swapped": lambda x: x.transpose(0, 1),
    "all turned": lambda x: x.permute(2, 1, 0),
    "every second row": lambda x: x[:, ::2, 1:],
    "every third column": lambda x: x[..., ::3],
    "negated later": lambda x: torch._neg_view(x),
    "five dims": lambda x: x.reshape(1, 2, 3, 7, 50),
    "a parameter": lambda x: torch.nn.Parameter(x),
}


@pytest.mark.parametrize("block", [None, (1, 16), (3, 5), (None, 1), (2, None)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, block: Block) -> None:
    x = LAYOUTS[layout](torch.randn(6, 7, 50, generator=torch.Generator().manual_seed(4)))
    name = "nvfp4" if block == (1, 16) else "e2m1"
    for call in (quant.quantize, quant.fake_quantize):
        results = [call(x, name, block=block, implementation=implementation)
                   for implementation in ("native", "reference")]  # fmt: skip
        for computed, expected in zip(*map(tensors_of, results), strict=True):
            assert_same_bits(computed, expected)
    rows = (quant.hadamard(x, torch.tensor([-1.0]), size=1, implementation=implementation)
            for implementation in ("native", "reference"))  # fmt: skip
    assert_same_bits(*rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, None])
@pytest.mark.parametrize("block", [(1, 16), (32, 7), (128, 128)])
def test_large_results_are_those_of_their_parts(dtype: torch.dtype | None, block: Block) -> None:
    """Results from 16 MiB on are written past the cache, whose lines the rows here do not begin at."""
    columns, columns_apart = 1037, 1041
    rows = (16 << 20) // ((dtype or torch.uint8).itemsize * columns) + 33
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, columns_apart, generator=generator).to(dtype or torch.float32)[:, :columns]
    call = quant.fake_quantize if dtype else quant.quantize
    whole = call(x, "e2m1", block=block, implementation="native")
    several = [call(part, "e2m1", block=block, implementation="native") for part in x.split(1024)]
    results = [one if dtype else one[0] for one in (whole, *several)]
    assert_same_bits(results[0], torch.cat(results[1:]))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("block", [(1, 16), (1, 7)])
def test_every_code_and_scale_dequantises(name: str, block: Block) -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    codes = codes.view(torch.int8) if FORMATS[name].is_integer else codes
    num_across = -(-256 // (block or (1, 256))[1])  # type: ignore[operator]
    scale_codes = torch.arange(256, dtype=torch.uint8)[:, None].expand(256, num_across)
    shared = torch.tensor(3.3e-5)
    for scales in (
        scale_codes.contiguous().view(torch.float8_e8m0fnu),
        scale_codes.int().mul(0x01010101).view(torch.float32),
        quant.NvScales(scale_codes.contiguous().view(torch.float8_e4m3fn), shared),
    ):
        results = [
            quant.dequantize(codes, scales, name, block=block, implementation=implementation)
            for implementation in ("native", "reference")
        ]
        assert_same_bits(*results)


def test_a_tensor_scale_that_is_learnt_dequantises() -> None:
    """Without torch's warning about numbers that were tensors, which is an error here."""
    codes, scales = quant.quantize(torch.randn(2, 32), "nvfp4")
    assert isinstance(scales, quant.NvScales)
    learnt = scales._replace(tensor=torch.nn.Parameter(scales.tensor))
    values = quant.dequantize(codes, learnt, "nvfp4", implementation="native")
    assert torch.equal(values, quant.dequantize(codes, scales, "nvfp4"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("block", [(1, 16), (1, 5)])
def test_results_round_to_narrow_types_like_torch(dtype: torch.dtype, block: Block) -> None:
    x = torch.arange(0, 2**16, dtype=torch.int32).to(torch.int16).view(dtype).reshape(-1, 2, 16)
    for scale_format, name in itertools.product(("fp32", "e8m0_ceil"), ("e2m1", "int8")):
        results = [
            quant.fake_quantize(
                x, name, block=block, scale_format=scale_format, implementation=implementation
            )
            for implementation in ("native", "reference")
        ]
        assert_same_bits(*results)


@settings(max_examples=100)
@given(
    size=st.sampled_from([1, 2, 4, 8, 16, 32, 128, 4096]),
    num_blocks=st.integers(1, 5),
    dtype=DTYPES,
    inverse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_hadamard_bits(size: int, num_blocks: int, dtype: torch.dtype, inverse: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, size * num_blocks, generator=generator).to(dtype)
    signs = torch.randint(0, 2, (size,), generator=generator) * 2.0 - 1
    results = [
        quant.hadamard(x, signs, size=size, inverse=inverse, implementation=implementation)
        for implementation in ("native", "reference")
    ]
    assert_same_bits(*results)
