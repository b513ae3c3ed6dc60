"""Packed linear layers: exact integer sums, a bound on the error, NaN, threads, shapes of every kind."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dtk_kernels import quant
from dtk_kernels.gemm import packed_linear
from dtk_kernels.workers import Workers
from tests.kernels.gemm.cases import operand, operand_values, seeds, within
from tests.kernels.implementations import BOTH

E8M0 = torch.float8_e8m0fnu

formats = st.sampled_from(["e2m1", "int8"])
scale_dtypes = st.sampled_from([torch.float32, E8M0])
# (block size, blocks in a row); one block may have any size.
layouts = st.tuples(st.sampled_from([16, 32, 48, 64, 128]), st.integers(1, 20)) | st.tuples(
    st.integers(1, 300), st.just(1)
)


def activation_block(depth: int, block_size: int) -> int:
    """Return how many activations share a scale in the native implementation."""
    return 16 if block_size < depth and block_size % 32 else 32


def half_steps(x: torch.Tensor, block: int) -> torch.Tensor:
    """Return half of the INT8 step at each activation, in float64."""
    depth = x.shape[1]
    padded = torch.nn.functional.pad(x.double(), (0, -depth % block))
    amax = padded.reshape(len(x), -(-depth // block), block).abs().amax(dim=-1)
    step = torch.where(amax == 0, 1.0, (amax / 127).clamp(min=2.0**-126))
    return step.repeat_interleave(block, dim=1)[:, :depth] / 2


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=80)
@given(
    format=formats,
    scale_dtype=scale_dtypes,
    layout=layouts,
    rows=st.integers(0, 7),
    outputs=st.integers(0, 13),
    magnitude=st.sampled_from([1e-36, 1.0, 1e30]),
    has_bias=st.booleans(),
    seed=seeds,
)
@example(
    format="e2m1",
    scale_dtype=torch.float32,
    layout=(32, 130),
    rows=1,
    outputs=9,
    magnitude=1.0,
    has_bias=False,
    seed=0,
)
@example(
    format="int8", scale_dtype=torch.float32, layout=(2081, 1), rows=3, outputs=5, magnitude=1.0,
    has_bias=True, seed=0,
)  # fmt: skip
def test_the_error_keeps_its_bound(
    format: str,
    scale_dtype: torch.dtype,
    layout: tuple[int, int],
    rows: int,
    outputs: int,
    magnitude: float,
    has_bias: bool,
    seed: int,
    implementation: str | None,
) -> None:
    block_size, depth = layout[0], layout[0] * layout[1]
    generator = torch.Generator().manual_seed(seed)
    codes, scales = operand(outputs, depth, format, scale_dtype, block_size, generator)
    # Columns on both sides that must not count.
    x = (torch.randn((rows, depth + 9), generator=generator) * magnitude)[:, 4 : depth + 4]
    bias = torch.randn(outputs, generator=generator) * magnitude if has_bias else None
    weight = operand_values(codes, scales, format, depth)
    expected = x.double() @ weight.T + (bias.double() if bias is not None else 0.0)
    result = packed_linear(
        x, codes, scales, format, block_size=block_size, bias=bias, implementation=implementation
    )
    assert (result.shape, result.dtype) == ((rows, outputs), torch.float32)
    bound = 2.0**-24 * (depth / 16 + 64) * (x.abs().double() @ weight.T.abs() + expected.abs())
    if implementation != "reference":
        steps = half_steps(x, activation_block(depth, block_size))
        bound = bound + (1 + 2.0**-10) * steps @ weight.T.abs()
    assert within(result, expected, bound)


@pytest.mark.native
@pytest.mark.parametrize("block_size", [16, 32, 1024])
def test_the_relative_error_on_gaussian_data_is_as_documented(block_size: int) -> None:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn((32, 1024), generator=generator)
    codes, scales = operand(64, 1024, "int8", torch.float32, block_size, generator)
    exact = x.double() @ operand_values(codes, scales, "int8", 1024).T
    result = packed_linear(x, codes, scales, "int8", block_size=block_size, implementation="native")
    assert float((result - exact).norm() / exact.norm()) == pytest.approx(0.005, abs=0.0007)


def exact_case(
    format: str, depth: int, block_size: int, generator: torch.Generator, *, rows: int = 3, outputs: int = 6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return arguments whose products a float32 sum holds exactly, and the products by int64."""
    codes, _ = operand(outputs, depth, format, torch.float32, block_size, generator)
    shift = torch.randint(0, 2, (outputs, depth // block_size), generator=generator)
    x = torch.randint(-127, 128, (rows, depth), generator=generator)
    x[:, :: activation_block(depth, block_size)] = 127  # so that a step is 1
    doubled = (2 * operand_values(codes, torch.ones(shift.shape), format, depth)).long()
    weight = doubled << shift.repeat_interleave(block_size, dim=1)
    return x.float(), codes, (1 << shift).float(), (x @ weight.T).double() / 2


@pytest.mark.native
@settings(max_examples=60)
@given(format=formats, layout=layouts, rows=st.integers(1, 6), outputs=st.integers(1, 11), seed=seeds)
@example(format="e2m1", layout=(16, 8), rows=3, outputs=6, seed=0)
def test_integer_sums_are_exact(
    format: str, layout: tuple[int, int], rows: int, outputs: int, seed: int
) -> None:
    block_size, count = layout[0], min(layout[1], 8)
    generator = torch.Generator().manual_seed(seed)
    x, codes, scales, expected = exact_case(
        format, block_size * count, block_size, generator, rows=rows, outputs=outputs
    )
    for factors in (scales, scales.to(E8M0)):
        result = packed_linear(x, codes, factors, format, block_size=block_size, implementation="native")
        assert torch.equal(result.double(), expected)


@pytest.mark.native
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("weight", [-128, -127, 127])
def test_the_largest_integers_do_not_saturate(weight: int, sign: int) -> None:
    codes = torch.full((5, 512), weight, dtype=torch.int8)
    x = torch.full((2, 512), 127.0 * sign)
    result = packed_linear(x, codes, torch.ones(5, 16), "int8", block_size=32, implementation="native")
    assert torch.equal(result, torch.full((2, 5), 512.0 * 127 * sign * weight))


@pytest.mark.native
@pytest.mark.parametrize("block_size", [16, 32])
def test_every_pair_of_codes_counts(block_size: int) -> None:
    """One activation at a time meets every byte at every place of a row."""
    depth = 5 * block_size
    packed = torch.arange(256, dtype=torch.uint8)[:, None].expand(256, depth // 2).contiguous()
    weight = operand_values(packed, torch.ones(256, 5), "e2m1", depth)
    x = torch.eye(depth) * 127
    result = packed_linear(
        x, packed, torch.ones(256, 5), "e2m1", block_size=block_size, implementation="native"
    )
    assert torch.equal(result.double(), 127 * weight.T)


@pytest.mark.native
@pytest.mark.parametrize("magnitude", [1e-44, 1e-40, 1e-38, 1e-3, 1.0, 1e5, 3e38])
@pytest.mark.parametrize("format", ["e2m1", "int8"])
def test_activations_are_rounded_as_quantize_does(format: str, magnitude: float) -> None:
    """Unit weights, one in each row, give back what became of the activations."""
    generator = torch.Generator().manual_seed(0)
    depth = 96
    x = torch.randn((40, depth), generator=generator) / 8
    x = x.clamp(-1, 1) * magnitude
    x[:4, 32:64] = 0
    ties = torch.arange(96.0) - 48 + 0.5  # y with a step of 1
    ties[::32] = 127
    x[4] = ties
    identity = torch.eye(depth).to(torch.int8)
    scales = torch.ones(depth, 3)
    if format == "e2m1":
        identity = quant.pack(identity.to(torch.uint8) * 2, implementation="reference")  # code 2 is 1.0
    result = packed_linear(x, identity, scales, format, block_size=32, implementation="native")
    codes, steps = quant.quantize(x, "int8", block=(1, 32), implementation="reference")
    expected = quant.dequantize(codes, steps, "int8", block=(1, 32), implementation="reference")
    assert torch.equal(result, expected)


@pytest.mark.native
def test_every_e8m0_scale_is_decoded() -> None:
    scales = torch.arange(255, dtype=torch.uint8).view(E8M0)[:, None]
    codes = torch.full((255, 8), 0x22, dtype=torch.uint8)  # all ones
    x = torch.zeros(1, 16)
    x[0, 3] = 127
    result = packed_linear(x, codes, scales, "e2m1", block_size=16, implementation="native")
    expected = torch.tensor([127 * 2.0 ** (code - 127) for code in range(255)], dtype=torch.float64).float()
    assert torch.equal(result[0], expected)


@pytest.mark.parametrize("implementation", BOTH)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_nan_stays_in_its_row_and_its_output(rows: int, implementation: str | None) -> None:
    generator = torch.Generator().manual_seed(1)
    for scale_dtype in (torch.float32, E8M0):
        codes, scales = operand(9, 160, "e2m1", scale_dtype, 32, generator)
        x = torch.randn((rows, 160), generator=generator)
        x[-1, 70] = math.nan
        scales[4, 2] = math.nan
        result = packed_linear(x, codes, scales, "e2m1", block_size=32, implementation=implementation)
        nan = torch.zeros(rows, 9, dtype=torch.bool)
        nan[-1], nan[:, 4] = True, True
        assert torch.equal(result.isnan(), nan)


@pytest.mark.native
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_makes_the_native_results_nan(value: float) -> None:
    x = torch.ones(2, 64)
    x[1, 40] = value
    codes = torch.zeros((3, 64), dtype=torch.int8)
    result = packed_linear(x, codes, torch.ones(3, 1), "int8", block_size=64, implementation="native")
    assert torch.equal(result.isnan(), torch.tensor([[False] * 3, [True] * 3]))


@pytest.mark.native
@pytest.mark.parametrize("format", ["e2m1", "int8"])
def test_an_output_does_not_depend_on_what_else_is_computed(format: str) -> None:
    generator = torch.Generator().manual_seed(2)
    codes, scales = operand(23, 336, format, torch.float32, 16, generator)
    x = torch.randn((7, 336), generator=generator)
    options = {"block_size": 16, "implementation": "native"}
    whole = packed_linear(x, codes, scales, format, **options)
    for rows, outputs in (
        (slice(0, 1), slice(0, 23)),
        (slice(3, 7), slice(5, 6)),
        (slice(6, 7), slice(2, 9)),
    ):
        part = packed_linear(x[rows], codes[outputs], scales[outputs], format, **options)
        assert torch.equal(part, whole[rows, outputs])


@pytest.mark.parametrize("shape", [(48,), (0, 48), (2, 3, 48)])
def test_leading_dims_stay(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    codes, scales = operand(5, 48, "int8", torch.float32, 48, generator)
    x = torch.randn((*shape[:-1], 2 * 48), generator=generator)[..., ::2]
    result = packed_linear(x, codes, scales, "int8", block_size=48)
    assert result.shape == (*shape[:-1], 5)
    flat = packed_linear(x.reshape(-1, 48).contiguous(), codes, scales, "int8", block_size=48)
    assert torch.equal(result.reshape(-1, 5), flat)


@pytest.mark.native
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("format", ["e2m1", "int8"])
def test_workers_give_the_same_bits_and_let_x_change(format: str, threads: int) -> None:
    generator = torch.Generator().manual_seed(4)
    codes, scales = operand(2051, 1024, format, torch.float32, 32, generator)  # several tasks
    x, bias = torch.randn((3, 1024), generator=generator), torch.randn(2051, generator=generator)
    expected = packed_linear(x, codes, scales, format, block_size=32, bias=bias, implementation="native")
    with Workers(threads) as workers:
        job = workers.submit_packed_linear(x, codes, scales, format, block_size=32, bias=bias)
        x.fill_(math.nan)
        assert torch.equal(job.wait(), expected)


def test_workers_of_both_kinds(workers: Workers, kind: str) -> None:
    generator = torch.Generator().manual_seed(5)
    codes, scales = operand(7, 96, "e2m1", E8M0, 32, generator)
    x = torch.randn((2, 96), generator=generator)
    implementation = "native" if kind == "native" else "reference"
    expected = packed_linear(x, codes, scales, "e2m1", block_size=32, implementation=implementation)
    assert torch.equal(workers.submit_packed_linear(x, codes, scales, "e2m1", block_size=32).wait(), expected)
    with pytest.raises(ValueError, match=r"^format must be one of e2m1, int8, got 'e4m3'"):
        workers.submit_packed_linear(x, codes, scales, "e4m3", block_size=32)
