"""Packing against bit arithmetic on lists, the Hadamard transform against its matrix in float64."""

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk_kernels import quant
from tests.kernels.implementations import EVERYWHERE


@pytest.mark.parametrize("implementation", EVERYWHERE)
@settings(max_examples=100)
@given(rows=st.integers(0, 4), count=st.integers(0, 40), signed=st.booleans(), step=st.sampled_from([1, 2]))
def test_pack_and_unpack(rows: int, count: int, signed: bool, step: int, implementation: str) -> None:
    low, high = (-8, 8) if signed else (0, 16)
    generator = torch.Generator().manual_seed(count)
    dtype = torch.int8 if signed else torch.uint8
    codes = torch.randint(low, high, (rows, step * count), generator=generator).to(dtype)[:, ::step]
    packed = quant.pack(codes, implementation=implementation)
    assert (packed.dtype, packed.shape) == (torch.uint8, (rows, (count + 1) // 2))
    for row, bytes_ in zip(codes.tolist(), packed.tolist(), strict=True):
        nibbles = [code % 16 for code in row] + [0] * (count % 2)
        assert bytes_ == [
            first + 16 * second for first, second in zip(nibbles[::2], nibbles[1::2], strict=True)
        ]
    unpacked = quant.unpack(packed, count, signed=signed, implementation=implementation)
    assert unpacked.dtype == dtype
    assert unpacked.is_contiguous()
    assert torch.equal(unpacked, codes)


@pytest.mark.parametrize("implementation", EVERYWHERE)
def test_only_four_bits_are_packed(implementation: str) -> None:
    codes = torch.tensor([0x1F, 0xF2], dtype=torch.uint8)
    assert quant.pack(codes, implementation=implementation).tolist() == [0x2F]


def signs_of(size: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(0, 2, (size,), generator=generator) * 2 - 1).float()


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 64, 128, 1024, 4096])
def test_hadamard_is_the_matrix(size: int, implementation: str) -> None:
    x = torch.randn(2, 3, 2 * size, generator=torch.Generator().manual_seed(size))
    signs = signs_of(size)
    matrix = scipy.linalg.hadamard(size) / np.sqrt(size)
    blocks = x.double().numpy().reshape(2, 3, 2, size) * signs.numpy()
    expected = (blocks @ matrix).reshape(x.shape)
    result = quant.hadamard(x, signs, size=size, implementation=implementation)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)
    back = quant.hadamard(result, signs, size=size, inverse=True, implementation=implementation)
    torch.testing.assert_close(back, x, rtol=0, atol=4e-6)


@pytest.mark.parametrize("implementation", EVERYWHERE)
@settings(max_examples=60)
@given(
    power=st.integers(0, 8),
    num_blocks=st.integers(0, 3),
    rows=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    transposed=st.booleans(),
    inverse=st.booleans(),
)
def test_hadamard_to_the_bit(
    power: int, num_blocks: int, rows: int, dtype: torch.dtype, transposed: bool, inverse: bool,
    implementation: str,
) -> None:  # fmt: skip
    """Butterflies in numpy's float32, in the documented order."""
    size = 1 << power
    shape = (rows, num_blocks * size)
    generator = torch.Generator().manual_seed(power)
    x = torch.randn(shape[::-1] if transposed else shape, generator=generator).to(dtype)
    x = x.T if transposed else x
    signs = signs_of(size, seed=rows)
    v = x.float().numpy().reshape(-1, size).copy()
    v = v if inverse else v * signs.numpy()
    for stride in (1 << bit for bit in range(power)):
        for start in range(size):
            if not start & stride:
                a, b = v[:, start].copy(), v[:, start + stride].copy()
                v[:, start], v[:, start + stride] = a + b, a - b
    v *= np.float32(size**-0.5)
    v = v * signs.numpy() if inverse else v
    result = quant.hadamard(x, signs, size=size, inverse=inverse, implementation=implementation)
    assert result.is_contiguous()
    assert torch.equal(result, torch.from_numpy(v).reshape(shape).to(dtype))


@pytest.mark.parametrize("implementation", EVERYWHERE)
def test_hadamard_spreads_an_outlier(implementation: str) -> None:
    x = torch.zeros(64)
    x[17] = 8.0
    result = quant.hadamard(x, signs_of(64), size=64, implementation=implementation)
    assert torch.equal(result.abs(), torch.ones(64))
