"""The scaled product, its emulation interpreted, against the values of another library's number formats."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels.formats import FORMATS
from dtk_kernels.gemm import scaled_matmul as public
from dtk_kernels.gemm.scaled_matmul.triton_kernel import method_of, scaled_matmul
from tests.kernels.gemm.cases import operand, operand_values
from tests.kernels.triton import inputs

E8M0, E4M3 = torch.float8_e8m0fnu, torch.float8_e4m3fn

formats = st.sampled_from(sorted(FORMATS))
scale_dtypes = st.sampled_from([torch.float32, torch.bfloat16, E8M0, E4M3])


@pytest.mark.interp
@settings(max_examples=25)
@given(
    a_format=formats,
    b_format=formats,
    a_scale=scale_dtypes,
    b_scale=scale_dtypes,
    layout=st.tuples(st.sampled_from([16, 32, 48, 128]), st.integers(1, 3))
    | st.tuples(st.integers(1, 70), st.just(1)),
    rows=st.integers(0, 20),
    columns=st.integers(0, 20),
    seed=inputs.seeds,
)
def test_equals_the_products_of_the_values(
    device: torch.device,
    a_format: str,
    b_format: str,
    a_scale: torch.dtype,
    b_scale: torch.dtype,
    layout: tuple[int, int],
    rows: int,
    columns: int,
    seed: int,
) -> None:
    block_size, depth = layout[0], layout[0] * layout[1]
    source = inputs.generator(seed)
    a = operand(rows, depth, a_format, a_scale, block_size, source)
    b = operand(columns, depth, b_format, b_scale, block_size, source)
    with inputs.poisoned_memory():
        result = scaled_matmul(
            *(tensor.to(device) for tensor in (*a, *b)),
            a_format,
            b_format,
            block_size=block_size,
            method="fp16",
        )
    x, w = operand_values(*a, a_format, depth), operand_values(*b, b_format, depth)
    # Products are exact; sums of magnitudes bound what float32 sums lose.
    bound = 2.0**-24 * (depth + 8) * (x.abs() @ w.abs().T)
    assert result.shape == (rows, columns)
    assert ((result.cpu().double() - x @ w.T).abs() <= bound).all()


# bfloat16 holds every code of these times a power of two, so Triton's emulation is exact, too.
@pytest.mark.interp
@pytest.mark.parametrize(("a_format", "b_format"), [("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e5m2", "e4m3")])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 200, 256), (130, 20, 96), (3, 5, 32)])
def test_block_scaled_products(
    device: torch.device, a_format: str, b_format: str, rows: int, columns: int, depth: int
) -> None:
    source = inputs.generator(rows)
    a = operand(rows, depth, a_format, E8M0, 32, source)
    b = operand(columns, depth, b_format, E8M0, 32, source)
    with inputs.poisoned_memory():
        result = scaled_matmul(
            *(tensor.to(device) for tensor in (*a, *b)), a_format, b_format, block_size=32, method="scaled"
        )
    x, w = operand_values(*a, a_format, depth), operand_values(*b, b_format, depth)
    assert ((result.cpu().double() - x @ w.T).abs() <= 2.0**-24 * (depth + 8) * (x.abs() @ w.abs().T)).all()


@pytest.mark.interp
def test_several_tiles_each_way(device: torch.device) -> None:
    source = inputs.generator(1)
    a = operand(150, 64, "e2m1", E8M0, 32, source)
    b = operand(200, 64, "e2m1", E8M0, 32, source)
    result = public(
        *(tensor.to(device) for tensor in (*a, *b)), "e2m1", "e2m1", block_size=32, implementation="triton"
    )
    expected = operand_values(*a, "e2m1", 64) @ operand_values(*b, "e2m1", 64).T
    assert torch.equal(result.cpu().double(), expected)  # multiples of 2^-8 below 2^16


# In the columns that a tile has too many, infinity meets zeros.
@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
@pytest.mark.interp
@pytest.mark.parametrize("format", [name for name, one in FORMATS.items() if not one.is_integer])
def test_every_code_is_decoded(device: torch.device, format: str) -> None:
    """Each code alone in its row, times one."""
    count = 1 << FORMATS[format].bits
    codes = torch.zeros((count, 16), dtype=torch.uint8)
    codes[:, 3] = torch.arange(count)
    if count == 16:
        codes = codes[:, ::2] | (codes[:, 1::2] << 4)
    ones = torch.ones((1, 16), dtype=torch.int8)
    scales = torch.ones(count, 1)
    result = scaled_matmul(
        *(tensor.to(device) for tensor in (codes, scales, ones, scales[:1])),
        format,
        "int8",
        block_size=16,
        method="fp16",
    )
    expected = torch.tensor(FORMATS[format].values)
    torch.testing.assert_close(result[:, 0].cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.interp
@pytest.mark.parametrize("dtype", [E8M0, E4M3])
def test_every_scale_is_decoded(device: torch.device, dtype: torch.dtype) -> None:
    scales = torch.arange(256, dtype=torch.uint8).view(dtype)[:, None].to(device)
    codes = torch.zeros((256, 16), dtype=torch.int8, device=device)
    codes[:, 0] = 1
    one = torch.ones((1, 1), device=device)
    result = scaled_matmul(codes, scales, codes[:1], one, "int8", "int8", block_size=16, method="fp16")
    expected = scales[:, 0].cpu().float()
    torch.testing.assert_close(result[:, 0].cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("arguments", "capability", "method"),
    [
        (("e2m1", "e2m1", E8M0, E8M0, 32), 100, "scaled"),
        (("e2m1", "e2m1", E4M3, E4M3, 16), 100, "scaled"),
        (("e4m3", "e2m1", E8M0, E8M0, 32), 103, "scaled"),
        (("e2m1", "e2m1", E8M0, E8M0, 16), 100, "fp16"),
        (("e2m1", "e2m1", E8M0, E4M3, 32), 100, "fp16"),
        (("e4m3", "e4m3", E4M3, E4M3, 16), 100, "fp16"),
        (("e2m1", "e2m1", E8M0, E8M0, 32), 90, "fp16"),
        (("e4m3", "e5m2", torch.float32, torch.float32, 128), 90, "fp8"),
        (("e4m3", "e4m3", E8M0, E8M0, 32), 90, "fp8"),
        (("e4m3", "e4m3", torch.float32, torch.float32, 48), 90, "fp16"),
        (("e4m3", "e4m3", torch.float32, torch.float32, 128), 80, "fp16"),
        (("int8", "e4m3", torch.float32, torch.float32, 128), 100, "fp16"),
    ],
)
def test_the_fastest_way_that_fits_is_taken(
    arguments: tuple[str, str, torch.dtype, torch.dtype, int], capability: int, method: str
) -> None:
    assert method_of(*arguments, capability) == method


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 4096, 4096), (100, 130, 352), (512, 1000, 2048)])
@pytest.mark.parametrize(
    ("a_format", "b_format", "scale_dtype", "block_size"),
    [
        ("e4m3", "e4m3", torch.float32, 32),
        ("e5m2", "e4m3", torch.float32, 32),
        ("e2m1", "e2m1", E8M0, 32),
        ("e2m1", "e2m1", E4M3, 16),
        ("e4m3", "e2m1", E8M0, 32),
        ("int8", "int4", torch.bfloat16, 16),
    ],
)
def test_every_method_on_a_gpu(
    shape: tuple[int, int, int], a_format: str, b_format: str, scale_dtype: torch.dtype, block_size: int
) -> None:
    rows, columns, depth = shape
    source = inputs.generator(0)
    a = operand(rows, depth, a_format, scale_dtype, block_size, source)
    b = operand(columns, depth, b_format, scale_dtype, block_size, source)
    tensors = [tensor.cuda() for tensor in (*a, *b)]
    x, w = operand_values(*a, a_format, depth), operand_values(*b, b_format, depth)
    expected, size = x @ w.T, x.abs() @ w.abs().T
    with inputs.poisoned_memory():
        result = scaled_matmul(*tensors, a_format, b_format, block_size=block_size)
        emulated = scaled_matmul(*tensors, a_format, b_format, block_size=block_size, method="fp16")
        if method_of(a_format, b_format, scale_dtype, scale_dtype, block_size, 100) == "scaled":
            # Where there are no such tensor cores, Triton emulates them.
            scaled = scaled_matmul(*tensors, a_format, b_format, block_size=block_size, method="scaled")
            assert ((scaled.cpu().double() - expected).abs() <= 2.0**-13 * size).all()
    # FP8 tensor cores of Hopper keep 14 bits of a sum.
    assert ((result.cpu().double() - expected).abs() <= 2.0**-13 * size).all()
    assert ((emulated.cpu().double() - expected).abs() <= 2.0**-24 * (depth / 16 + 64) * size).all()
