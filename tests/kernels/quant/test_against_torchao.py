"""torchao's MX and NVFP4 tensors on a CPU, as far as it quantises as we do.

torchao is no dependency of the tests: transformers imports it wherever it is installed, with warnings and in
seconds. So its answers are recorded as digests, which are compared here always, and checked to be torchao's
own where it can be imported (0.18.0 made them).
"""

import hashlib
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from dtk_kernels import quant
from tests.kernels.implementations import DIRECT
from tests.kernels.quant.oracles import midpoints_and_neighbours

MODES = {"e8m0": "FLOOR", "e8m0_ceil": "CEIL", "e8m0_even": "EVEN", "e8m0_rceil": "RCEIL"}
ELEMENTS = {
    "e2m1": "float4_e2m1fn_x2",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e3m2": "fp6_e3m2",
    "e2m3": "fp6_e2m3",
}
DIGESTS = {
    ("e2m1", "e8m0"): "f5ccb91894032ead",
    ("e2m1", "e8m0_ceil"): "4f172fb7c768f4d2",
    ("e2m1", "e8m0_even"): "8a5fc332c652de54",
    ("e2m1", "e8m0_rceil"): "a020601f72db150c",
    ("e4m3", "e8m0"): "41270a0eae9b09ab",
    ("e4m3", "e8m0_ceil"): "bb983872eecf46b1",
    ("e4m3", "e8m0_even"): "2ec1adb6b8251cdd",
    ("e4m3", "e8m0_rceil"): "36bd33219c1d1419",
    ("e5m2", "e8m0"): "c2226334ddff027e",
    ("e5m2", "e8m0_ceil"): "5c98078b41783e44",
    ("e5m2", "e8m0_even"): "986418fc783d97b2",
    ("e5m2", "e8m0_rceil"): "ac1fa04da8124a2c",
    ("e3m2", "e8m0"): "852f953770e92eec",
    ("e3m2", "e8m0_ceil"): "5ddb2ec69b73f8ba",
    ("e3m2", "e8m0_even"): "91432ff560cf32f8",
    ("e3m2", "e8m0_rceil"): "0f2c82ff02b75ba0",
    ("e2m3", "e8m0"): "85123254c93eba83",
    ("e2m3", "e8m0_ceil"): "bb7434efe2679443",
    ("e2m3", "e8m0_even"): "01b7ee14cba3ff16",
    ("e2m3", "e8m0_rceil"): "b9f663ad13192805",
}
NVFP4_DIGEST = "ddb6322a096f8aee"


def inputs() -> torch.Tensor:
    """Blocks of 32 of many magnitudes, all normal; every midpoint of E2M1 and its neighbours among them."""
    generator = torch.Generator().manual_seed(3)
    bits = torch.randint(-(2**31), 2**31, (512, 64), generator=generator).to(torch.int32)
    # Exponents of a block within 16 binades of each other, somewhere from 2^-80 to 2^80.
    exponent = torch.randint(47, 190, (512, 2), generator=generator).repeat_interleave(32, dim=1)
    exponent = exponent + torch.randint(0, 16, (512, 64), generator=generator)
    random = ((bits & ~0x7F800000) | (exponent.to(torch.int32) << 23)).view(torch.float32)
    ties = midpoints_and_neighbours("e2m1")
    # Just above 7, torchao's float32 logarithm loses what makes RCEIL round up: see below.
    rows = torch.from_numpy(np.where(np.abs(ties) > 7, 0, ties)).reshape(-1, 8)
    tied = torch.cat([rows, torch.full((len(rows), 1), 4.0), torch.zeros(len(rows), 55)], dim=1)
    return torch.cat([random, tied])


def bell_shaped() -> torch.Tensor:
    """Sums of integers, so that they are the same everywhere."""
    generator = torch.Generator().manual_seed(4)
    return torch.randint(-(2**20), 2**20, (128, 256, 4), generator=generator).sum(dim=2) / 2.0**18


def digest(*tensors: torch.Tensor) -> str:
    joined = hashlib.sha256()
    for tensor in tensors:
        joined.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return joined.hexdigest()[:16]


@pytest.fixture
def torchao() -> Any:
    pytest.importorskip("torchao", reason="optional: its answers are recorded, too", exc_type=ImportError)
    return import_module("torchao.prototype.mx_formats.mx_tensor")


def torchao_mx(
    torchao: Any, x: torch.Tensor, name: str, scale_format: str
) -> tuple[torch.Tensor, torch.Tensor]:
    element = getattr(torch, ELEMENTS[name], ELEMENTS[name])
    mode = getattr(torchao.ScaleCalculationMode, MODES[scale_format])
    scales, codes = torchao.to_mx(x, element, 32, mode)
    return (codes if name == "e2m1" else codes.view(torch.uint8)), scales


def ours(
    x: torch.Tensor, name: str, scale_format: str, implementation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales = quant.quantize(
        x, name, block=(1, 32), scale_format=scale_format, implementation=implementation
    )
    assert isinstance(scales, torch.Tensor)
    return (quant.pack(codes, implementation="reference") if name == "e2m1" else codes), scales


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize(("name", "scale_format"), DIGESTS)
def test_mx_has_the_recorded_codes_and_scales(name: str, scale_format: str, implementation: str) -> None:
    assert digest(*ours(inputs(), name, scale_format, implementation)) == DIGESTS[name, scale_format]


@pytest.mark.parametrize(("name", "scale_format"), DIGESTS)
def test_mx_records_are_torchaos(name: str, scale_format: str, torchao: Any) -> None:
    assert digest(*torchao_mx(torchao, inputs(), name, scale_format)) == DIGESTS[name, scale_format]


@pytest.mark.parametrize("implementation", DIRECT)
def test_nvfp4_has_the_recorded_codes_and_scales(implementation: str) -> None:
    codes, scales = quant.quantize(bell_shaped(), "nvfp4", implementation=implementation)
    packed = quant.pack(codes, implementation="reference")
    assert isinstance(scales, quant.NvScales)
    assert digest(packed, scales.block, scales.tensor.reshape(1)) == NVFP4_DIGEST


def test_nvfp4_records_are_torchaos(torchao: Any) -> None:
    nvfp4 = import_module("torchao.prototype.mx_formats.nvfp4_tensor")
    x = bell_shaped()
    shared = nvfp4.per_tensor_amax_to_scale(x.abs().max())
    scales, packed = nvfp4.nvfp4_quantize(x, 16, shared)
    assert digest(packed, scales, shared.reshape(1)) == NVFP4_DIGEST


class TestWhereTorchaoDiffers:
    def test_rceil_loses_the_last_place(self, torchao: Any) -> None:
        """Its logarithm is rounded: log2 of 7.0000005 / 448 is no more than that of 7 / 448."""
        x = torch.zeros(1, 32)
        x[0, 0] = torch.tensor(7.0).nextafter(torch.tensor(8.0))
        _, theirs = torchao_mx(torchao, x, "e4m3", "e8m0_rceil")
        _, scales = ours(x, "e4m3", "e8m0_rceil", "reference")
        assert (float(theirs), float(scales)) == (2.0**-6, 2.0**-5)

    def test_tiny_blocks_are_divided_by_more_than_their_scale(self, torchao: Any) -> None:
        """Its float32 scale is at least 2^-126, also where the code says 2^-127."""
        x = torch.full((1, 32), 2.0**-127)
        codes, theirs = torchao_mx(torchao, x, "e4m3", "e8m0")
        own_codes, scales = ours(x, "e4m3", "e8m0", "reference")
        assert float(theirs) == float(scales) == 2.0**-127
        assert own_codes.view(torch.float8_e4m3fn).float().eq(1).all()
        assert codes.view(torch.float8_e4m3fn).float().eq(0.5).all()

    def test_nvfp4_scales_end_at_the_smallest_normal(self, torchao: Any) -> None:
        nvfp4 = import_module("torchao.prototype.mx_formats.nvfp4_tensor")
        x = torch.zeros(1, 32)
        x[0, 0], x[0, 16] = 1.0, 1e-5
        theirs, _ = nvfp4.nvfp4_quantize(x, 16, nvfp4.per_tensor_amax_to_scale(x.max()))
        _, scales = quant.quantize(x, "nvfp4", implementation="reference")
        assert isinstance(scales, quant.NvScales)
        assert theirs.float().tolist() == [[448, 2.0**-6]]
        assert scales.block.float().tolist() == [[448, 2.0**-8]]

    def test_infinity_does_not_spread_over_its_block(self, torchao: Any) -> None:
        x = torch.full((1, 32), 3.0)
        x[0, 1] = torch.inf
        _, theirs = torchao_mx(torchao, x, "e4m3", "e8m0")
        _, scales = ours(x, "e4m3", "e8m0", "reference")
        assert theirs.float().isfinite().all()
        assert scales.float().isnan().all()
