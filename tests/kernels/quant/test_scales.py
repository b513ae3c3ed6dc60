"""The scale of a block by its largest magnitude, where rules change and at the ends of float32."""

import numpy as np
import pytest
import torch

from dtk_kernels import quant
from dtk_kernels.formats import FORMATS, SCALE_FORMATS
from tests.kernels.implementations import EVERYWHERE
from tests.kernels.quant.oracles import MAX, STEP_OF_TOP_BINADE, block_factor


def largest_magnitudes(name: str) -> np.ndarray:
    """Powers of two, the largest element, what rounds up to a power of two; neighbours; the extremes."""
    top = 2.0 ** FORMATS[name].max_exponent
    points = np.array([top, MAX[name], 2 * top - STEP_OF_TOP_BINADE[name] / 2, 1.5 * top], dtype=np.float32)
    points = np.concatenate(
        [points, np.nextafter(points, np.float32(0)), np.nextafter(points, np.float32(1e30))]
    )
    scaled = points * 2.0 ** np.arange(-20, 21, 4, dtype=np.float32)[:, None]
    tiny = np.float32(2.0**-149) * np.array(
        [0, 1, 2, 3, 6, 7, 448, 2**22, 2**23 - 1, 2**23], dtype=np.float32
    )
    near_2_126 = np.float32(2.0**-126) * points
    huge = np.array([2.0**126, 2.0**127, np.finfo(np.float32).max], dtype=np.float32)
    return np.concatenate([scaled.ravel(), tiny, near_2_126, huge]).astype(np.float32)


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scale_format", [one for one in SCALE_FORMATS if one != "nvfp4"])
def test_scale_of_each_magnitude(name: str, scale_format: str, implementation: str) -> None:
    amax = largest_magnitudes(name)
    x = torch.from_numpy(np.stack([amax / 2, -amax], axis=1))
    _, scales = quant.quantize(
        x, name, block=(1, 2), scale_format=scale_format, implementation=implementation
    )
    assert isinstance(scales, torch.Tensor)
    expected = [block_factor(each, name, scale_format, np.float32(1)) for each in amax]
    np.testing.assert_array_equal(scales.float()[:, 0].numpy(), expected)


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("name", FORMATS)
def test_both_scales_of_nvfp4(name: str, implementation: str) -> None:
    amax = largest_magnitudes(name)[:, None]
    for rows in (amax, np.zeros((3, 1), dtype=np.float32)):
        _, scales = quant.quantize(
            torch.from_numpy(rows), name, block=(1, 16), scale_format="nvfp4", implementation=implementation
        )
        assert isinstance(scales, quant.NvScales)
        shared = rows.max() / np.float32(MAX[name] * 448) or np.float32(1)
        assert float(scales.tensor) == shared
        expected = [block_factor(each, name, "nvfp4", shared) for each in rows[:, 0]]
        np.testing.assert_array_equal((scales.block.float() * scales.tensor)[:, 0].numpy(), expected)


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("scale_format", SCALE_FORMATS)
def test_scales_of_what_is_not_finite_are_nan(scale_format: str, implementation: str) -> None:
    x = torch.tensor([[1.0, torch.inf], [torch.nan, 2.0], [-torch.inf, torch.nan], [1.0, 2.0]])
    codes, scales = quant.quantize(
        x, "e5m2", block=(1, 2), scale_format=scale_format, implementation=implementation
    )
    block_scales = scales.block if isinstance(scales, quant.NvScales) else scales
    assert block_scales.float().isnan()[:, 0].tolist() == [True, True, True, False]
    if block_scales.element_size() == 1:
        expected = 0x7F if scale_format == "nvfp4" else 0xFF
        assert block_scales.view(torch.uint8)[:3, 0].tolist() == [expected] * 3
    assert codes[:3].count_nonzero() == 0
    assert codes[3].all()
