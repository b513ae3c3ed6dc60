"""Scaled products against another library's number formats, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.formats import FORMATS
from dtk_kernels.gemm import scaled_matmul
from tests.kernels.gemm.cases import operand, operand_values, seeds, within
from tests.kernels.implementations import BOTH

formats = st.sampled_from(sorted(FORMATS))
scale_dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e8m0fnu, torch.float8_e4m3fn])


@pytest.mark.parametrize("implementation", BOTH)
@settings(max_examples=80)
@given(
    a_format=formats,
    b_format=formats,
    a_scale=scale_dtypes,
    b_scale=scale_dtypes,
    layout=st.tuples(st.sampled_from([16, 32, 48, 128]), st.integers(1, 5))
    | st.tuples(st.integers(1, 70), st.just(1)),
    rows=st.integers(0, 13),
    columns=st.integers(0, 40),
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
    left, right = operand_values(*a, a_format, depth), operand_values(*b, b_format, depth).T
    expected = left @ right
    assert (result.shape, result.dtype) == ((rows, columns), torch.float32)
    if implementation == "reference":
        torch.testing.assert_close(result.double(), expected, rtol=2.0**-23, atol=1e-12)
    else:  # a rounding for each value, each sum of the chain
        assert within(result, expected, 2.0**-24 * (depth + 3) * (left.abs() @ right.abs()))


@pytest.mark.native
@pytest.mark.parametrize("shape", [(1, 1, 1040), (7, 273, 528), (13, 530, 256), (70, 17, 784)])
def test_tiles_and_their_ends(shape: tuple[int, int, int]) -> None:
    """Integers whose sums float32 holds: every tile, strip and part of one is exact."""
    rows, columns, depth = shape
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(-9, 10, (rows, depth), generator=generator, dtype=torch.int8)
    b = torch.randint(-9, 10, (columns, depth), generator=generator, dtype=torch.int8)
    scales = [torch.full((count, depth // 16), 0.5) for count in (rows, columns)]
    result = scaled_matmul(a, scales[0], b, scales[1], "int8", "int8", block_size=16, implementation="native")
    assert torch.equal(result, (a.double() @ b.double().T / 4).float())


@pytest.mark.native
def test_a_result_does_not_depend_on_what_else_is_computed() -> None:
    generator = torch.Generator().manual_seed(1)
    a = operand(15, 544, "e4m3", torch.float32, 32, generator)
    b = operand(300, 544, "e2m1", torch.float8_e8m0fnu, 32, generator)
    whole = scaled_matmul(*a, *b, "e4m3", "e2m1", block_size=32, implementation="native")
    for rows, columns in ((slice(0, 1), slice(3, 4)), (slice(4, 15), slice(100, 290))):
        parts = (*(part[rows] for part in a), *(part[columns] for part in b))
        part = scaled_matmul(*parts, "e4m3", "e2m1", block_size=32, implementation="native")
        assert torch.equal(part, whole[rows, columns])


@pytest.mark.parametrize("implementation", BOTH)
def test_nan_codes_and_nan_scales_show(implementation: str | None) -> None:
    codes = torch.zeros((3, 32), dtype=torch.uint8)
    codes[0, 5] = 0x7F
    scales = torch.ones(3, 2)
    scales[1, 1] = float("nan")
    ones = torch.full((2, 32), 0x38, dtype=torch.uint8)
    result = scaled_matmul(
        codes, scales, ones, torch.ones(2, 2), "e4m3", "e4m3", block_size=16, implementation=implementation
    )
    assert torch.equal(result.isnan(), torch.tensor([[True] * 2, [True] * 2, [False] * 2]))
