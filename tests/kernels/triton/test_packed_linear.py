"""The packed linear layer, interpreted, against the values of another library's number formats."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.gemm import packed_linear as public
from dtk_kernels.gemm.packed_linear.triton_kernel import packed_linear
from tests.kernels.gemm.cases import operand, operand_values
from tests.kernels.triton import inputs

E8M0 = torch.float8_e8m0fnu


def check(
    device: torch.device, format: str, scale_dtype: torch.dtype, shape: tuple[int, int, int], block_size: int,
    *, has_bias: bool, seed: int,
) -> None:  # fmt: skip
    """Compare one call with float64; three TF32 products lose a few bits of 2^-22."""
    rows, outputs, depth = shape
    source = inputs.generator(seed)
    codes, scales = operand(outputs, depth, format, scale_dtype, block_size, source)
    x = inputs.randn((rows, 2 * depth), source, torch.float32)[:, ::2]
    bias = inputs.randn((outputs,), source, torch.float32) if has_bias else None
    weight = operand_values(codes, scales, format, depth)
    with inputs.poisoned_memory():
        result = packed_linear(
            x.to(device),
            codes.to(device),
            scales.to(device),
            format,
            block_size=block_size,
            bias=None if bias is None else bias.to(device),
        )
    expected = x.double() @ weight.T + (0.0 if bias is None else bias.double())
    bound = (2.0**-20 + 2.0**-24 * depth) * (x.abs().double() @ weight.abs().T + expected.abs())
    assert result.shape == (rows, outputs)
    assert ((result.cpu().double() - expected).abs() <= bound).all()


@pytest.mark.interp
@settings(max_examples=25)
@given(
    format=st.sampled_from(["e2m1", "int8"]),
    scale_dtype=st.sampled_from([torch.float32, E8M0]),
    layout=st.tuples(st.sampled_from([16, 32, 48, 128]), st.integers(1, 4))
    | st.tuples(st.integers(1, 200), st.just(1)),
    rows=st.integers(0, 40),
    outputs=st.integers(0, 40),
    has_bias=st.booleans(),
    seed=inputs.seeds,
)
def test_equals_the_product_of_the_values(
    device: torch.device,
    format: str,
    scale_dtype: torch.dtype,
    layout: tuple[int, int],
    rows: int,
    outputs: int,
    has_bias: bool,
    seed: int,
) -> None:
    shape = rows, outputs, layout[0] * layout[1]
    check(device, format, scale_dtype, shape, layout[0], has_bias=has_bias, seed=seed)


@pytest.mark.interp
def test_the_public_function_finds_the_kernel(device: torch.device) -> None:
    codes = torch.full((3, 8), 0x22, dtype=torch.uint8, device=device)  # ones
    x = torch.ones((2, 4, 16), device=device)
    result = public(x, codes, torch.ones(3, 1, device=device), "e2m1", block_size=16, implementation="triton")
    assert torch.equal(result, torch.full((2, 4, 3), 16.0, device=device))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 4096, 4096), (16, 1000, 352), (70, 130, 2048)])
@pytest.mark.parametrize("scale_dtype", [torch.float32, E8M0])
@pytest.mark.parametrize("format", ["e2m1", "int8"])
def test_real_sizes_on_a_gpu(format: str, scale_dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    check(torch.device("cuda"), format, scale_dtype, shape, 32, has_bias=True, seed=0)
