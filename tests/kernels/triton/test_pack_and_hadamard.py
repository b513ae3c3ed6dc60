"""Packing and the Hadamard transform in Triton at many tiles and real sizes, bit for bit.

Small shapes are in tests/kernels/quant, which run these kernels, too.
"""

import pytest
import torch

from dtk_kernels.quant import hadamard, pack, unpack
from dtk_kernels.quant.hadamard import triton_kernel as hadamard_kernel
from dtk_kernels.quant.pack import triton_kernel as pack_kernel
from tests.kernels.triton import inputs

SHAPES = [(1, 301), (7, 64), (5, 65), (3, 2, 1)]
LARGE = [(1, 1 << 20), (4096, 4096), (1000, 4097), (5000, 30)]


def check_packing(shape: tuple[int, ...], *, signed: bool, strided: bool, device: torch.device) -> None:
    """Pack, compare with the reference, and unpack again."""
    wide = inputs.randint(
        -8 if signed else 0, 7 if signed else 15, (*shape[:-1], 2 * shape[-1]), inputs.generator(0)
    )
    codes = wide.to(torch.int8 if signed else torch.uint8)
    codes = codes[..., ::2] if strided else codes[..., : shape[-1]].contiguous()
    packed = pack(codes.to(device), implementation="triton")
    assert torch.equal(packed.cpu(), pack(codes, implementation="reference"))
    unpacked = unpack(packed, shape[-1], signed=signed, implementation="triton")
    assert unpacked.is_contiguous()
    assert torch.equal(unpacked.cpu(), codes)


@pytest.mark.interp
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_packing_in_many_tiles(
    device: torch.device, shape: tuple[int, ...], signed: bool, strided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_kernel, "_TILE_BYTES", 16)
    check_packing(shape, signed=signed, strided=strided, device=device)


@pytest.mark.gpu
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("shape", LARGE)
def test_packing_on_a_gpu(shape: tuple[int, ...], strided: bool) -> None:
    check_packing(shape, signed=strided, strided=strided, device=torch.device("cuda"))


def check_hadamard(
    shape: tuple[int, ...], size: int, dtype: torch.dtype, *, transposed: bool, device: torch.device
) -> None:
    """Both directions; signs that are no signs, which a fused product and sum would round otherwise."""
    source = inputs.generator(size)
    x, signs = inputs.randn(shape, source, dtype), inputs.randn((size,), source, torch.float32)
    x = x.mT.contiguous().mT if transposed else x
    for inverse in (False, True):
        result = hadamard(x.to(device), signs.to(device), size=size, inverse=inverse, implementation="triton")
        wanted = hadamard(x, signs, size=size, inverse=inverse, implementation="reference")
        assert result.is_contiguous()
        assert torch.equal(result.cpu(), wanted)


@pytest.mark.interp
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("size", [1, 8, 64])
def test_hadamard_in_many_tiles(
    device: torch.device, size: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hadamard_kernel, "_ELEMENTS", 64)
    check_hadamard((2, 3, 192), size, torch.float16, transposed=transposed, device=device)


@pytest.mark.gpu
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 2, 16, 32, 64, 128, 1024, 4096])
def test_hadamard_on_a_gpu(size: int, dtype: torch.dtype, transposed: bool) -> None:
    check_hadamard((3, 257, 8192), size, dtype, transposed=transposed, device=torch.device("cuda"))
