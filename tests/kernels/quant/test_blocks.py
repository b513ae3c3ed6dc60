"""Blocks and their scales against loops in numpy: shapes, strides, ragged tails, any float32 there is."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels import quant
from dtk_kernels.formats import FORMATS, SCALE_FORMATS
from tests.kernels.implementations import DIRECT, EVERYWHERE
from tests.kernels.quant.oracles import block_slices, quantize_by_loops

Block = tuple[int | None, int | None] | None

BLOCKS = st.none() | st.tuples(
    st.none() | st.sampled_from([1, 2, 3, 16, 128]), st.none() | st.sampled_from([1, 3, 16, 32, 128])
)
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])


@st.composite
def tensors(draw: st.DrawFn, *, lead: bool = True) -> torch.Tensor:
    """Any bits of any float dtype, or numbers of like size, with the dims in any order in memory."""
    shape = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(0, 2)) if lead else 0)]
    shape += [draw(st.integers(0, 5)), draw(st.sampled_from([0, 1, 2, 15, 16, 17, 33, 40]))]
    order = draw(st.permutations(range(len(shape))))
    memory_shape = [shape[dim] for dim in order]
    dtype = draw(DTYPES)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    if draw(st.booleans()):
        bits = torch.randint(-(2**31), 2**31, memory_shape, generator=generator).to(torch.int32)
        memory = bits.view(torch.float32)
        if draw(st.booleans()):  # magnitudes, but no NaN and Inf
            memory = memory.nan_to_num(nan=0.0)
    else:
        memory = torch.randn(memory_shape, generator=generator) * 2.0 ** draw(st.integers(-149, 126))
        memory *= torch.rand(memory_shape, generator=generator) < draw(st.sampled_from([0.1, 1.0]))
    x = memory.to(dtype).permute([order.index(dim) for dim in range(len(shape))])
    return x[..., ::2] if draw(st.booleans()) else x


@pytest.mark.parametrize("implementation", DIRECT)
@settings(max_examples=400)
@given(
    x=tensors(),
    name=st.sampled_from(list(FORMATS)),
    block=BLOCKS,
    scale_format=st.sampled_from(SCALE_FORMATS),
)
def test_codes_scales_and_values(
    x: torch.Tensor, name: str, block: Block, scale_format: str, implementation: str
) -> None:
    codes, scales = quant.quantize(
        x, name, block=block, scale_format=scale_format, implementation=implementation
    )
    values = quant.dequantize(codes, scales, name, block=block, implementation=implementation)
    assert codes.is_contiguous()
    assert codes.shape == values.shape == x.shape
    expected_codes, expected = quantize_by_loops(x.float().numpy(), name, block, scale_format)
    np.testing.assert_array_equal(codes.numpy(), expected_codes)
    np.testing.assert_array_equal(values.numpy(), expected)
    np.testing.assert_array_equal(
        np.signbit(values.numpy()) & ~np.isnan(expected), np.signbit(expected) & ~np.isnan(expected)
    )


@pytest.mark.parametrize("implementation", DIRECT)
@settings(max_examples=200)
@given(
    x=tensors(),
    name=st.sampled_from(list(FORMATS)),
    block=BLOCKS,
    scale_format=st.sampled_from(SCALE_FORMATS),
    stochastic=st.booleans(),
)
def test_fake_quantize_is_there_and_back(
    x: torch.Tensor, name: str, block: Block, scale_format: str, stochastic: bool, implementation: str
) -> None:
    generator = torch.Generator().manual_seed(5)
    random_bits = torch.randint(-(2**31), 2**31, x.shape, generator=generator).to(torch.int32)
    rounding = {"rounding": "stochastic", "random_bits": random_bits} if stochastic else {}
    options = {"block": block, "scale_format": scale_format, "implementation": implementation, **rounding}
    codes, scales = quant.quantize(x, name, **options)
    expected = quant.dequantize(codes, scales, name, block=block, implementation="reference").to(x.dtype)
    result = quant.fake_quantize(x, name, **options)
    assert result.is_contiguous()
    assert (result.dtype, result.shape) == (x.dtype, x.shape)
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(result.signbit() & ~result.isnan(), expected.signbit() & ~expected.isnan())


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize(
    ("shape", "block", "expected"),
    [
        ((5, 70), None, ()),
        ((5, 70), (1, 32), (5, 3)),
        ((5, 70), (1, None), (5, 1)),
        ((5, 70), (None, 1), (1, 70)),
        ((5, 70), (None, None), (1, 1)),
        ((5, 70), (2, 128), (3, 1)),
        ((2, 3, 5, 70), (4, 16), (2, 3, 2, 5)),
        ((70,), (1, 32), (3,)),
        ((70,), (8, None), (1,)),
        ((0, 70), (1, 32), (0, 3)),
        ((5, 0), (1, None), (5, 0)),
        ((0,), None, ()),
        ((0, 3), (None, 1), (0, 3)),
    ],
)
def test_scales_shape(
    shape: tuple[int, ...], block: Block, expected: tuple[int, ...], implementation: str
) -> None:
    x = torch.ones(shape)
    codes, scales = quant.quantize(x, "e4m3", block=block, implementation=implementation)
    assert isinstance(scales, torch.Tensor)
    assert scales.shape == expected
    values = quant.dequantize(codes, scales, "e4m3", block=block, implementation=implementation)
    torch.testing.assert_close(values, x)


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize(
    ("scale_format", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("e8m0_even", torch.float8_e8m0fnu)],
)
def test_scales_say_their_format(scale_format: str, dtype: torch.dtype, implementation: str) -> None:
    _, scales = quant.quantize(
        torch.ones(4), "int8", block=None, scale_format=scale_format, implementation=implementation
    )
    assert isinstance(scales, torch.Tensor)
    assert scales.dtype == dtype


@pytest.mark.parametrize("implementation", EVERYWHERE)
def test_presets_stand_for_their_parts(implementation: str) -> None:
    x = torch.randn(3, 50, generator=torch.Generator().manual_seed(2))
    codes, scales = quant.quantize(x, "nvfp4", implementation=implementation)
    same, same_scales = quant.quantize(
        x, "e2m1", block=(1, 16), scale_format="nvfp4", implementation=implementation
    )
    assert isinstance(scales, quant.NvScales)
    assert isinstance(same_scales, quant.NvScales)
    assert (scales.block.dtype, scales.tensor.dtype) == (torch.float8_e4m3fn, torch.float32)
    assert torch.equal(codes, same)
    assert torch.equal(scales.block.view(torch.uint8), same_scales.block.view(torch.uint8))
    assert torch.equal(scales.tensor, same_scales.tensor)
    values = quant.dequantize(codes, scales, "nvfp4", implementation=implementation)
    assert torch.equal(values, quant.fake_quantize(x, "nvfp4", implementation=implementation))
    codes, mx_scales = quant.quantize(x, "mxfp4", scale_format="e8m0_rceil", implementation=implementation)
    assert isinstance(mx_scales, torch.Tensor)
    assert mx_scales.shape == (3, 2)
    values = quant.dequantize(codes, mx_scales, "mxfp4", implementation=implementation)
    expected = quant.fake_quantize(
        x, "e2m1", block=(1, 32), scale_format="e8m0_rceil", implementation=implementation
    )
    assert torch.equal(values, expected)


@settings(max_examples=60)
@given(x=tensors(lead=False), block=BLOCKS)
def test_what_is_not_finite_stays_in_its_block(x: torch.Tensor, block: Block) -> None:
    values = quant.fake_quantize(x, "e4m3", block=block, implementation="reference").float()
    for _, slices in block_slices((x.shape[0], x.shape[1]), block):
        clean = bool(x[slices].isfinite().all())
        assert clean == (not values[slices].isnan().any())
        assert clean or values[slices].isnan().all()


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 7), (4,), (0, 5), (5, 0)])
def test_blocks_larger_than_the_tensor_are_short(shape: tuple[int, ...], implementation: str) -> None:
    """Padded to the block's size, the tensor would take 16 GiB."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    codes, scales = quant.quantize(x, "e4m3", block=(2**16, 2**16), implementation=implementation)
    expected_codes, expected_scales = quant.quantize(
        x, "e4m3", block=(None, None), implementation=implementation
    )
    assert isinstance(scales, torch.Tensor)
    assert isinstance(expected_scales, torch.Tensor)
    assert torch.equal(codes, expected_codes)
    assert torch.equal(scales, expected_scales)
    values = quant.dequantize(codes, scales, "e4m3", block=(2**16, 2**16), implementation=implementation)
    assert torch.equal(values, quant.fake_quantize(x, "e4m3", block=(None, None)))
