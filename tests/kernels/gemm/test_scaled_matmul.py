"""The reference of the scaled product against another library's number formats, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.formats import FORMATS
from dtk_kernels.gemm import scaled_matmul
from tests.kernels.gemm.cases import operand, operand_values, seeds

formats = st.sampled_from(sorted(FORMATS))
scale_dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e8m0fnu, torch.float8_e4m3fn])


@pytest.mark.parametrize("implementation", ["reference", None])
@settings(max_examples=80)
@given(
    a_format=formats,
    b_format=formats,
    a_scale=scale_dtypes,
    b_scale=scale_dtypes,
    layout=st.tuples(st.sampled_from([16, 32, 48, 128]), st.integers(1, 5))
    | st.tuples(st.integers(1, 70), st.just(1)),
    rows=st.integers(0, 5),
    columns=st.integers(0, 5),
    seed=seeds,
)
def test_equals_float64_products_of_the_values(
    a_format: str,
    b_format: str,
    a_scale: torch.dtype,
    b_scale: torch.dtype,
    layout: tuple[int, int],
    rows: int,
    columns: int,
    seed: int,
    implementation: str | None,
) -> None:
    block_size, depth = layout[0], layout[0] * layout[1]
    generator = torch.Generator().manual_seed(seed)
    a = operand(rows, depth, a_format, a_scale, block_size, generator)
    b = operand(columns, depth, b_format, b_scale, block_size, generator)
    result = scaled_matmul(*a, *b, a_format, b_format, block_size=block_size, implementation=implementation)
    expected = operand_values(*a, a_format, depth) @ operand_values(*b, b_format, depth).T
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=2.0**-23, atol=1e-12)


def test_nan_codes_and_nan_scales_show() -> None:
    codes = torch.zeros((3, 32), dtype=torch.uint8)
    codes[0, 5] = 0x7F
    scales = torch.ones(3, 2)
    scales[1, 1] = float("nan")
    ones = torch.full((2, 32), 0x38, dtype=torch.uint8)
    result = scaled_matmul(codes, scales, ones, torch.ones(2, 2), "e4m3", "e4m3", block_size=16)
    assert torch.equal(result.isnan(), torch.tensor([[True] * 2, [True] * 2, [False] * 2]))
