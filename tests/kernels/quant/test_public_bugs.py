"""Bugs that others reported of their quantisers in public, each as a test of ours."""

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from dtk_kernels import quant
from dtk_kernels.formats import FORMATS, PRESETS, SCALE_FORMATS
from tests.kernels.implementations import DIRECT
from tests.kernels.quant.oracles import nearest_codes

Fake = Callable[..., torch.Tensor]

SCHEMES = [
    ("mxfp4", {}),
    ("mxfp4", {"scale_format": "e8m0_rceil"}),
    ("nvfp4", {}),
    ("e4m3", {"block": (1, 128)}),
    ("e4m3", {"block": (1, 128), "scale_format": "bf16"}),
    ("e2m1", {"block": None}),
    ("int8", {"block": (1, None)}),
]
every_scheme = pytest.mark.parametrize(("format", "options"), SCHEMES)


@pytest.fixture(params=DIRECT)
def implementation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fake(implementation: str) -> Fake:
    def call(x: torch.Tensor, format: str, **options: object) -> torch.Tensor:
        return quant.fake_quantize(x, format, implementation=implementation, **options)

    return call


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_e4m3_overflow_saturates(fake: Fake) -> None:
    """jax-ml/ml_dtypes#400, pytorch PR #178817: NaN in one library, 448 in another, and it changed."""
    x = torch.tensor([[448.0, 256], [464, 256], [465, 256], [511, 256]])
    assert fake(x, "e4m3", block=(1, 2), scale_format="e8m0")[:, 0].tolist() == [448.0] * 4
    for value in (1000.0, 3e38):
        assert fake(torch.tensor([value]), "e4m3", block=None, scale_format="e8m0").isfinite()
    for value in (math.inf, math.nan):
        assert fake(torch.tensor([value, 1.0]), "e4m3", block=None).isnan().all()


def test_the_floor_scale_saturates_and_the_others_do_not(fake: Fake) -> None:
    """microsoft/microxcaling#4: 957 becomes 896 in MXFP8, since 957 over its scale exceeds 448."""
    x = torch.tensor([957.0])
    assert fake(x, "e4m3", block=None, scale_format="e8m0") == 896  # OCP's rule, with its loss
    for scale_format in ("e8m0_rceil", "e8m0_ceil", "fp32"):
        assert fake(x, "e4m3", block=None, scale_format=scale_format).item() == pytest.approx(957, rel=1 / 16)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scale_format", ["e8m0_rceil", "e8m0_ceil", "fp32"])
def test_the_largest_element_loses_half_a_step_at_most(name: str, scale_format: str, fake: Fake) -> None:
    """ml-explore/mlx PR #4353: a scale rounded to nearest saturates the maximum by up to 29 %."""
    x = gaussian(512, 32)
    values = fake(x, name, block=(1, 32), scale_format=scale_format)
    at = x.abs().argmax(dim=1, keepdim=True)
    error = (values.gather(1, at) / x.gather(1, at) - 1).abs()
    # y is at least half of the largest element, unless the exponent is rounded up from just above max.
    half_step = (
        1 / 2
        if FORMATS[name].is_integer
        else 2.0 ** (FORMATS[name].max_exponent - FORMATS[name].mantissa_bits) / 2
    )
    smallest_y = {"e8m0_ceil": 2.0 ** (FORMATS[name].max_exponent - 1), "e8m0_rceil": FORMATS[name].max / 2}
    if scale_format == "fp32":
        assert error.max() < 1e-6
    else:
        assert error.max() <= half_step / smallest_y[scale_format]


def test_codes_survive_the_round_trip(implementation: str) -> None:
    """tenstorrent/tt-metal#51971: codes changed on the way back; 0.25000006 became 0."""
    for format in FORMATS.values():
        finite = [code for code, value in enumerate(format.values) if math.isfinite(value)]
        if format.is_integer:
            finite.remove(format.max_code + 1)  # -128 and -8 decode but are never produced
        codes = torch.tensor(finite, dtype=torch.uint8)
        if format.is_integer:
            codes = torch.tensor([int(format.values[code]) for code in finite], dtype=torch.int8)
        one = torch.ones(())
        values = quant.dequantize(codes, one, format.name, block=None, implementation=implementation)
        again, scale = quant.quantize(values, format.name, block=None, implementation=implementation)
        assert torch.equal(again, codes)
        assert isinstance(scale, torch.Tensor)
        assert scale == 1
    x = torch.tensor([0.25000006, 0.25, 4])
    codes, _ = quant.quantize(x, "e2m1", block=None, scale_format="e8m0", implementation=implementation)
    assert codes.tolist() == [1, 0, 6]


def test_ties_go_to_even_codes(fake: Fake) -> None:
    """ROCm/aiter PR #3992: ties at 0.25, 1.25, 2.5 and 5 went away from zero."""
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    expected = torch.tensor([0.0, 1, 1, 2, 2, 4, 4])
    for sign in (1, -1):
        x = torch.cat([sign * ties, torch.tensor([6.0])])
        assert torch.equal(fake(x, "e2m1", block=None), torch.cat([sign * expected, torch.tensor([6.0])]))


def test_all_e8m0_codes(implementation: str) -> None:
    """vllm PR #43557, flashinfer PR #4023: 128 was taken for NaN, 255 became Inf, 0 was lost."""
    codes = torch.arange(256, dtype=torch.uint8)
    ones = torch.full((256, 1), 2, dtype=torch.uint8)  # 1 in E2M1
    scales = codes[:, None].view(torch.float8_e8m0fnu)
    values = quant.dequantize(ones, scales, "e2m1", block=(1, 1), implementation=implementation)
    expected = codes.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(values[:, 0].numpy(), expected)
    # Quantising gives each of them back, but for the highest two, beyond what 4 * 2^k can be in float32.
    x = 4 * values[:252]
    _, again = quant.quantize(x, "e2m1", block=(1, 1), scale_format="e8m0", implementation=implementation)
    assert isinstance(again, torch.Tensor)
    assert again.view(torch.uint8)[:, 0].tolist() == list(range(252))


@every_scheme
def test_stochastic_rounding_draws(format: str, options: dict[str, object], implementation: str) -> None:
    """TE PRs #3281 (zeros) and #2487 (shared bits), oneDNN PR #2903 (almost always down)."""
    draws = 4000
    x = gaussian(1, 128, seed=4).expand(draws, -1)

    def draw(seed: int) -> tuple[torch.Tensor, torch.Tensor | quant.NvScales]:
        generator = torch.Generator().manual_seed(seed)
        bits = torch.randint(-(2**31), 2**31, x.shape, generator=generator).to(torch.int32)
        return quant.quantize(
            x, format, rounding="stochastic", random_bits=bits, implementation=implementation, **options
        )

    codes, scales = draw(1)
    assert torch.equal(codes, draw(1)[0])
    assert not torch.equal(codes, draw(2)[0])
    assert not torch.equal(codes[0], codes[1])
    elements = FORMATS[PRESETS[format].format if format in PRESETS else format]
    ones = torch.full_like(codes, elements.values.index(1.0))
    block = {name: value for name, value in options.items() if name == "block"}
    factors = quant.dequantize(ones, scales, format, implementation=implementation, **block)[0].double()
    y = x[0].double() / factors
    values = torch.tensor(elements.values, dtype=torch.float64)
    mean = values[codes.int()].mean(dim=0)
    grid = values[values.isfinite()].unique()
    above = torch.searchsorted(grid, y).clamp(1, len(grid) - 1)
    step = grid[above] - grid[above - 1]
    part = (y - grid[above - 1]) / step
    # 5 standard errors, and 5 draws for what is drawn hardly ever; what saturates has another mean.
    allowed = 5 * step * ((part * (1 - part)).clamp(min=0) / draws).sqrt() + 5 * step / draws
    assert ((mean - y).abs() <= allowed)[y.abs() <= elements.max].all()
    assert (y.abs() <= elements.max).sum() >= 120


@every_scheme
@pytest.mark.parametrize("tiny", [0.0, 1e-45, 1e-40, 2.0**-126])
def test_zeros_and_denormals_give_finite_values(
    format: str, options: dict[str, object], tiny: float, fake: Fake
) -> None:
    """flashinfer#2440, pytorch/ao#3356: 0/0 in a block of zeros, an infinite scale in a tiny one."""
    x = torch.zeros(4, 256)
    x[0, 3] = tiny
    values = fake(x, format, **options)
    assert values.isfinite().all()
    assert values.abs().max() <= 2 * tiny
    x[2] = gaussian(256)
    values = fake(x, format, **options)
    assert values.isfinite().all()
    assert values[1].count_nonzero() == values[3].count_nonzero() == 0


@every_scheme
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_show(format: str, options: dict[str, object], bad: float, fake: Fake) -> None:
    """NVIDIA/TransformerEngine#3550: the maximum ignored NaN, which was lost."""
    x = gaussian(4, 256)
    x[1, 200] = bad
    values = fake(x, format, **options)
    assert values[1, 200].isnan()
    if options.get("block", 0) is not None:
        assert values[[0, 2, 3]].isfinite().all()
        assert torch.equal(values[[0, 2, 3]], fake(x[[0, 2, 3]], format, **options)) or format == "nvfp4"


@every_scheme
def test_negative_blocks_are_as_good_as_positive_ones(
    format: str, options: dict[str, object], fake: Fake
) -> None:
    """vllm PR #20578: the largest value was taken, not the largest magnitude."""
    x = gaussian(4, 256).abs()
    assert torch.equal(fake(-x, format, **options), -fake(x, format, **options))


def test_nvfp4_divides_by_the_scale_that_is_stored(implementation: str) -> None:
    """pytorch/FBGEMM PR #4884: elements were divided by the scale before its rounding; error 90 % for 9 %."""
    x = gaussian(64, 256) * torch.exp(2 * gaussian(64, 1, seed=1))
    codes, scales = quant.quantize(x, "nvfp4", implementation=implementation)
    assert isinstance(scales, quant.NvScales)
    stored = (scales.block.float() * scales.tensor).repeat_interleave(16, dim=1)
    expected = nearest_codes((x / stored).double().numpy(), "e2m1")
    np.testing.assert_array_equal(codes.numpy(), expected)
    unrounded = x.reshape(64, 16, 16).abs().amax(dim=2).repeat_interleave(16, dim=1) / 6
    assert (torch.from_numpy(nearest_codes((x / unrounded).double().numpy(), "e2m1")) != codes).any()


def test_nvfp4_follows_a_factor_of_the_tensor(fake: Fake) -> None:
    """modular#6600: the tensor's scale was a divisor here and a factor there."""
    x = gaussian(64, 256)
    values, scaled = fake(x, "nvfp4"), fake(1000 * x, "nvfp4") / 1000
    assert ((scaled - values).norm() / values.norm()) < 1e-3
    assert torch.equal(fake(1024 * x, "nvfp4"), 1024 * values)


@pytest.mark.parametrize("name", FORMATS)
def test_division_near_ties(name: str, implementation: str) -> None:
    """TE PR #2639, ao PR #4725: products with reciprocals, and rounding twice, flip codes near ties."""
    generator = torch.Generator().manual_seed(9)
    scale = torch.rand(4000, 1, generator=generator) + 0.5
    values = torch.tensor(FORMATS[name].values[: FORMATS[name].max_code + 1])
    ties = (values[1:] + values[:-1]) / 2
    near = ties[torch.randint(0, len(ties), (4000, 3), generator=generator)] * scale
    near = (near.view(torch.int32) + torch.randint(-1, 2, near.shape, generator=generator)).to(torch.int32)
    x = torch.cat([FORMATS[name].max * scale, near.view(torch.float32)], dim=1)
    codes, scales = quant.quantize(x, name, block=(1, None), implementation=implementation)
    assert isinstance(scales, torch.Tensor)
    quotient = x / scales
    exact = x.double().numpy() / scales.double().numpy()
    by_float64 = nearest_codes(exact, name)
    # float32 quotients are the nearest there are, so they can only hit a tie that float64 misses.
    at_tie = np.isin(quotient.abs().numpy(), ties.numpy())
    np.testing.assert_array_equal(codes.numpy()[~at_tie], by_float64[~at_tie])
    assert (~at_tie).sum() > 2000
    by_reciprocal = nearest_codes((x * (1 / scales)).double().numpy(), name)
    assert (by_reciprocal != codes.numpy()).any()


@pytest.mark.parametrize("name", FORMATS)
def test_e8m0_scales_are_not_rounded_twice(name: str, implementation: str) -> None:
    """ao PR #4725: float32 to bfloat16 to E8M0 lost the part that made RCEIL round up."""
    largest = np.float32(FORMATS[name].max)
    for amax in (largest, np.nextafter(largest, np.float32(np.inf)), np.nextafter(largest, np.float32(0))):
        _, scale = quant.quantize(
            torch.tensor([amax]), name, block=None, scale_format="e8m0_rceil", implementation=implementation
        )
        assert isinstance(scale, torch.Tensor)
        exact = (
            math.ceil(math.log2(Fraction(float(amax)) / Fraction(float(largest)))) if amax <= largest else 1
        )
        assert int(scale.view(torch.uint8)) - 127 == exact


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scale_format", SCALE_FORMATS)
def test_powers_of_two_pass_through(name: str, scale_format: str, fake: Fake) -> None:
    """ROCm/TransformerEngine PR #737: an absolute epsilon in the maximum killed small gradients."""
    x = gaussian(4, 128)
    values = fake(x, name, block=(1, 32), scale_format=scale_format)
    for power in range(-60, 61, 5):
        scaled = fake(x * 2.0**power, name, block=(1, 32), scale_format=scale_format)
        assert torch.equal(scaled, values * 2.0**power)


def test_presets_are_the_published_ones() -> None:
    assert {name: (preset.format, preset.block) for name, preset in PRESETS.items()} == {
        "mxfp4": ("e2m1", (1, 32)),
        "nvfp4": ("e2m1", (1, 16)),
    }
