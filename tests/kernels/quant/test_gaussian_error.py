"""The error on normally distributed numbers, against figures measured with other code."""

import math

import pytest
import torch

from dtk_kernels import quant
from tests.kernels.implementations import DIRECT

SIZE = 1024

# Mean squared error over mean square, to five decimals.
SCHEMES = [
    ("mxfp4", {}, 0.01323),
    ("mxfp4", {"scale_format": "e8m0_rceil"}, 0.01336),
    ("mxfp4", {"scale_format": "e8m0_ceil"}, 0.02082),
    ("mxfp4", {"scale_format": "e8m0_even"}, 0.01254),
    ("nvfp4", {}, 0.00904),
    ("e4m3", {"block": (1, 128)}, 0.00066),
    ("e5m2", {"block": (1, 128)}, 0.00263),
    ("e2m1", {"block": (1, 16)}, 0.00886),
    ("e2m1", {"block": (1, 32)}, 0.01021),
    ("e2m1", {"block": (1, 64)}, 0.01116),
    ("e2m1", {"block": (1, 128)}, 0.01185),
    ("e2m1", {"block": (1, 512)}, 0.01284),
    ("e2m1", {"block": (128, 128)}, 0.01516),
]


@pytest.fixture(scope="module")
def gaussian() -> torch.Tensor:
    return torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(11))


@pytest.mark.parametrize("implementation", DIRECT)
@pytest.mark.parametrize(("format", "options", "published"), SCHEMES)
def test_normalised_error(
    format: str, options: dict[str, object], published: float, implementation: str, gaussian: torch.Tensor
) -> None:
    """Within four standard errors of ours, as many for the published figure, and its last place."""
    values = quant.fake_quantize(gaussian, format, implementation=implementation, **options)
    error = ((values - gaussian) ** 2).double()
    # Elements of a block share its scale: parts as large as the largest block are independent.
    parts = error.reshape(8, 128, 8, 128).mean(dim=(1, 3)).flatten()
    standard_error = float(parts.std()) / math.sqrt(len(parts))
    measured = float(error.sum() / (gaussian.double() ** 2).sum())
    assert measured == pytest.approx(published, abs=8 * standard_error + 5e-6)
    assert standard_error < 0.01 * published


@pytest.mark.parametrize(("columns", "percent"), [(16, 6.8), (32, 7.8), (128, 9.4), (512, 10.9)])
def test_share_of_values_that_become_zero(columns: int, percent: float, gaussian: torch.Tensor) -> None:
    codes, _ = quant.quantize(gaussian, "e2m1", block=(1, columns), implementation="reference")
    share = float((codes & 7 == 0).double().mean())
    assert 100 * share == pytest.approx(percent, abs=0.05 + 0.15)


def test_nvfp4_keeps_the_effective_bits_that_quartet_asserts(gaussian: torch.Tensor) -> None:
    """Quartet II states more than 3.38 bits, -log2(NMSE) / 2, for nearest rounding."""

    def effective_bits(values: torch.Tensor) -> float:
        error = ((values - gaussian) ** 2).double().sum() / (gaussian.double() ** 2).sum()
        return -math.log2(float(error)) / 2

    assert effective_bits(quant.fake_quantize(gaussian, "nvfp4")) > 3.38
    assert effective_bits(quant.fake_quantize(gaussian, "mxfp4")) < 3.38
