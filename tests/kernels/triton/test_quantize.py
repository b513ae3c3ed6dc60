"""Quantisers in Triton, bit for bit: any shape against loops in numpy, then tiles, parts and real sizes.

Tests of rounding, scales and random bits are in tests/kernels/quant, which run these kernels, too.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtk_kernels import quant
from dtk_kernels.formats import FORMATS, SCALE_FORMATS
from dtk_kernels.quant import triton_tiles
from dtk_kernels.quant.triton_tiles import as_matrices, tiling_of
from tests.kernels.quant.oracles import quantize_by_loops
from tests.kernels.quant.test_blocks import BLOCKS, Block, tensors
from tests.kernels.triton import inputs

# The interpreter computes with numpy, which warns of what is meant: overflow to infinity in float16, say.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

interpreted = pytest.mark.interp
formats, scale_formats = st.sampled_from(list(FORMATS)), st.sampled_from(SCALE_FORMATS)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of numbers, on the CPU; those of NaN all alike."""
    tensor = tensor.cpu()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    if not tensor.is_floating_point() or tensor.element_size() == 1:
        return tensor.view(integer)
    return tensor.view(integer).masked_fill(tensor.isnan(), -1)


def results(
    x: torch.Tensor,
    name: str,
    block: Block,
    scale_format: str,
    bits: torch.Tensor | None,
    implementation: str,
) -> list[torch.Tensor]:
    """Everything that quantising, fake quantising and dequantising give."""
    rounding = "nearest" if bits is None else "stochastic"
    options = {"scale_format": scale_format, "rounding": rounding, "random_bits": bits}
    codes, scales = quant.quantize(x, name, block=block, implementation=implementation, **options)
    fake = quant.fake_quantize(x, name, block=block, implementation=implementation, **options)
    values = quant.dequantize(codes, scales, name, block=block, implementation=implementation)
    both = scales if isinstance(scales, quant.NvScales) else [scales]
    return [codes, fake, values, *both]


def check_equal(
    x: torch.Tensor, name: str, block: Block, scale_format: str, *, stochastic: bool, device: torch.device
) -> None:
    """Compare all results with the reference's."""
    bits = None
    if stochastic:
        bits = torch.randint(-(2**31), 2**31, x.shape, generator=inputs.generator(3)).to(torch.int32)
    wanted = results(x, name, block, scale_format, bits, "reference")
    there = None if bits is None else bits.to(device)
    got = results(x.to(device), name, block, scale_format, there, "triton")
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape, one.is_contiguous()) == (other.dtype, other.shape, True)
        assert torch.equal(bits_of(one), bits_of(other))


@interpreted
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=tensors(), name=formats, block=BLOCKS, scale_format=scale_formats)
def test_codes_and_values_are_those_of_loops(
    device: torch.device, x: torch.Tensor, name: str, block: Block, scale_format: str
) -> None:
    codes, _, values, *_ = results(x.to(device), name, block, scale_format, None, "triton")
    expected_codes, expected = quantize_by_loops(x.float().numpy(), name, block, scale_format)
    np.testing.assert_array_equal(codes.cpu().numpy(), expected_codes)
    np.testing.assert_array_equal(bits_of(values), bits_of(torch.from_numpy(expected)))


@interpreted
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=tensors(), name=formats, block=BLOCKS, scale_format=scale_formats, stochastic=st.booleans())
def test_everything_is_the_references(
    device: torch.device, x: torch.Tensor, name: str, block: Block, scale_format: str, stochastic: bool
) -> None:
    check_equal(x, name, block, scale_format, stochastic=stochastic, device=device)


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tiles so small that they are many, and blocks so large that they take several."""
    monkeypatch.setattr(triton_tiles, "_ELEMENTS", 64)
    monkeypatch.setattr(triton_tiles, "_MOST_ELEMENTS", 128)
    monkeypatch.setattr(triton_tiles, "_NARROW", 8)


@interpreted
@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("shape", "block", "scale_format"),
    [
        ((70, 9), None, "nvfp4"),
        ((2, 5, 33), None, "fp32"),
        ((2, 70, 6), (None, 1), "e8m0_ceil"),
        ((3, 300), (1, None), "bf16"),
        ((9, 70), (1, 16), "nvfp4"),
        ((2, 17, 21), (16, 16), "fp32"),
        ((40, 10), (17, 3), "e8m0"),
        ((600,), (1, 128), "fp32"),
        ((200,), (1, 48), "nvfp4"),
    ],
)
def test_many_tiles_and_parts(
    device: torch.device, shape: tuple[int, ...], block: Block, scale_format: str, transposed: bool
) -> None:
    x = inputs.randn(shape, inputs.generator(0), torch.float32)
    x.view(-1)[1] = float("nan")
    x = x.transpose(-1, -2).contiguous().transpose(-1, -2) if transposed and x.dim() > 1 else x
    check_equal(x, "e4m3", block, scale_format, stochastic=transposed, device=device)


@pytest.mark.parametrize(
    ("shape", "height", "width", "transposed", "tile", "parts"),
    [
        ((1, 1, 1 << 20), 1, 128, False, (1, 4096), 1),
        ((1, 4096, 4096), 128, 128, False, (128, 128), 1),
        ((1, 4096, 4096), 32, 1, False, (32, 128), 1),
        ((1, 4096, 4096), 1, 32, True, (64, 64), 1),  # rows lie side by side
        ((1, 512, 512), 512, 1, False, (512, 32), 1),
        ((1, 4096, 4096), 4096, 1, False, (64, 64), 64),
        ((1, 1, 16384), 1, 16384, False, (1, 16384), 1),
        ((1, 8, 1 << 17), 1, 1 << 17, False, (1, 4096), 32),
        ((1, 1000, 24), 1000, 24, False, (128, 32), 8),
        ((3, 2, 5), 2, 5, False, (2, 8), 1),
    ],
)
def test_tiles(
    shape: tuple[int, int, int], height: int, width: int, transposed: bool, tile: tuple[int, int], parts: int
) -> None:
    x = torch.empty(shape, device="meta")
    x = x.mT.contiguous().mT if transposed else x
    tiling = tiling_of(x, height, width)
    axes = tiling.down, tiling.across
    assert tuple(axis.num_blocks * axis.width for axis in axes) == tile
    assert tiling.parts == parts
    for axis in axes:
        # Together, tiles take in every element, and nothing much beyond.
        assert axis.tiles * axis.num_blocks * axis.width >= axis.length
        assert (axis.num_blocks == 1) or (axis.parts == 1)


@pytest.mark.parametrize(
    ("shape", "block", "expected"),
    [
        ((6, 8), None, ((1, 1, 48), 1, 48)),
        ((6, 8), (1, 4), ((1, 1, 48), 1, 4)),
        ((6, 8), (1, 0), ((1, 1, 48), 1, 8)),
        ((6, 8), (1, 3), ((1, 6, 8), 1, 3)),
        ((2, 6, 8), (1, 3), ((1, 12, 8), 1, 3)),
        ((2, 6, 8), (128, 128), ((2, 6, 8), 6, 8)),
        ((8,), (4, 4), ((1, 1, 8), 1, 4)),
    ],
)
def test_dims_are_joined(
    shape: tuple[int, ...], block: tuple[int, int] | None, expected: tuple[tuple[int, ...], int, int]
) -> None:
    matrices, height, width = as_matrices(torch.empty(shape), block)
    assert (tuple(matrices.shape), height, width) == expected


def test_dims_that_do_not_join_are_not_copied() -> None:
    x = torch.empty(3, 6, 8)[:, 1:]
    matrices, height, width = as_matrices(x, (1, 4))
    assert (matrices.shape, matrices.stride(), matrices.data_ptr()) == (x.shape, x.stride(), x.data_ptr())
    assert (height, width) == (1, 4)
    joined, _, _ = as_matrices(torch.empty(3, 6, 8)[:, :, 1:], (1, 4))
    assert (joined.shape, joined.stride()) == ((1, 18, 7), (144, 8, 1))


@interpreted
@pytest.mark.parametrize("name", [name for name, one in FORMATS.items() if not one.is_integer])
def test_every_code_is_decoded(device: torch.device, name: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    one = torch.ones((), device=device)
    values = quant.dequantize(codes, one, name, block=None, implementation="triton")
    table = torch.tensor(FORMATS[name].values)
    assert torch.equal(bits_of(values), bits_of(table.repeat(256 // len(table))))


LARGE = [
    ((4096, 4096), (1, 128), "e4m3", "fp32"),
    ((4096, 4096), (1, 32), "e2m1", "e8m0"),
    ((4096, 4096), (1, 16), "e2m1", "nvfp4"),
    ((1000, 1010), (1, 16), "e2m1", "nvfp4"),
    ((2, 1000, 1010), (128, 128), "e5m2", "fp32"),
    ((3, 1000, 777), (32, 1), "e3m2", "e8m0_rceil"),
    ((3, 1000, 777), (24, 40), "e2m3", "e8m0_even"),
    ((100, 5000), (1, None), "int8", "bf16"),
    ((5000, 100), (None, 1), "int8", "bf16"),
    ((33, 40000), (1, None), "int4", "fp32"),
    ((1000, 3001), None, "e4m3", "e8m0_ceil"),
]


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["dense", "transposed", "gaps"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("shape", "block", "name", "scale_format"), LARGE)
def test_real_sizes_on_a_gpu(
    shape: tuple[int, ...], block: Block, name: str, scale_format: str, dtype: torch.dtype, layout: str
) -> None:
    source = inputs.generator(1)
    x = inputs.randn(shape, source, torch.float32) * torch.exp(
        4 * inputs.randn(shape[-1:], source, torch.float32)
    )
    x = x.to(dtype)
    if layout == "transposed":
        x = x.mT.contiguous().mT
    elif layout == "gaps":
        x = torch.stack([x, torch.full_like(x, float("nan"))], dim=-1).flatten(-2)[..., ::2]
    for stochastic in (False, True):
        check_equal(x, name, block, scale_format, stochastic=stochastic, device=torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("scale_format", SCALE_FORMATS)
@pytest.mark.parametrize("name", FORMATS)
def test_any_bits_on_a_gpu(name: str, scale_format: str) -> None:
    """Subnormal numbers and scales, NaN, Inf and the largest numbers: where GPUs have other habits."""
    bits = torch.randint(-(2**31), 2**31, (512, 4096), generator=inputs.generator(2)).to(torch.int32)
    tiny = bits & -0x7F000001  # exponents of 0 and 1 only
    for x in (bits.view(torch.float32), tiny.view(torch.float32)):
        for block in ((1, 16), (1, 2), (16, 16), None):
            for stochastic in (False, True):
                check_equal(x, name, block, scale_format, stochastic=stochastic, device=torch.device("cuda"))
