"""Quantise: codes and block scales of a tensor."""

from collections.abc import Sequence
from types import EllipsisType

import torch

from dtk_kernels._operation import Operation
from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._arguments import Block, check_quantizer, resolve
from dtk_kernels.quant._blocks import scales_shape
from dtk_kernels.quant._scales import Scales, as_scales, scale_dtype

__all__ = ["quantize"]


def quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Block | EllipsisType = ...,
    scale_format: str | None = None,
    rounding: str = "nearest",
    random_bits: torch.Tensor | None = None,
    implementation: str | None = None,
) -> tuple[torch.Tensor, Scales]:
    """Round a tensor to a number format, with a scale for each block of it.

    All arithmetic is float32, and every implementation gives the same bits. Each element is divided by its
    block's scale (a true division) and the quotient y rounded:

    - *nearest*: ties go to the even code. *stochastic*: see `random_bits`.
    - Beyond the largest finite element, y saturates: no quantised element is Inf or NaN.
    - Subnormal elements round like all others. The sign of zero stays (integers have none).
    - NaN or Inf anywhere in a block makes its scale NaN and its codes 0, so that all of it dequantises to
      NaN; other blocks do not notice.

    The scale follows from amax, the largest magnitude in the block, and max, the largest element:

    - `fp32`: amax / max, but 1 if amax is 0, and at least 2^-126.
    - `bf16`: the same, rounded to nearest even. It may come out smaller; then the largest elements saturate.
    - `e8m0`: 2^(floor(log2(amax)) - floor(log2(max))), as in OCP MX: up to the largest quarter of a block's
      range saturates. Its exponent is clamped to [-127, 127]; a block of zeros has 2^-127.
      `e8m0_ceil` takes the ceiling of log2(amax); `e8m0_even` first rounds amax to the element's mantissa
      bits; `e8m0_rceil` is 2^ceil(log2(amax / max)), the smallest power of two that saturates nothing.
    - `nvfp4`: the tensor has a float32 scale, its largest finite magnitude / (max * 448), or 1 if that is 0;
      each block an E4M3 one, (amax / max) / tensor scale, to nearest even, saturating at 448. The elements
      are divided by the product of both *as stored*; where that is 0, the codes are 0.

    Args:
        x: `[..., rows, columns]`, float32, float16 or bfloat16, any strides; a vector counts as one row.
        format: "e2m1", "e4m3", "e5m2", "e3m2", "e2m3", "int8" or "int4" (see `dtk_kernels.formats`); or a
            preset that fixes block and scale format too: "mxfp4" (e2m1, (1, 32), e8m0 of any kind) or
            "nvfp4" (e2m1, (1, 16), nvfp4).
        block: Rows and columns of a block, at most 65536 each; None in the pair means the whole dim, so
            (1, None) is one scale a row. None instead of the pair is one scale for the whole tensor. The last
            block along a dim may be short. Left out only for presets.
        scale_format: As above; "fp32" if left out, or the preset's.
        rounding: "nearest" or "stochastic".
        random_bits: int32 in the shape of `x`, uniform over all 2^32 values; required for stochastic rounding
            and only allowed there. Of y's 24-bit significand s (y is s * 2^k), the low `shift` bits lie below
            the format's last place at y: y is rounded away from zero if `(s mod 2^shift) + (unsigned
            random_bits >> (32 - shift)) >= 2^shift`, else towards it. So the mean over all bits is y, unless
            y saturates. `shift` is at most 31; for smaller y, s is first shifted right by the excess.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        `(codes, scales)`. Codes have x's shape, one in each byte: int8 for the integer formats, else uint8.
        Scales have shape `[..., ceil(rows / block rows), ceil(columns / block columns)]` (`[]` for one scale,
        without the row dim for a vector) and a dtype that says their format: float32, bfloat16,
        float8_e8m0fnu, or for "nvfp4" a tuple `NvScales(block, tensor)`.

    Raises:
        ValueError: An argument is unknown, does not fit or contradicts a preset; the text names it.
        TypeError: `block` is missing, or an argument is of the wrong type.
        NotImplementedError: The named implementation is missing here.
    """
    layout = resolve(format, block, scale_format)
    codes, scales, shared = OPERATION(
        implementation,
        x,
        layout.format,
        block=layout.block,
        scale_format=layout.scale_format,
        rounding=rounding,
        random_bits=random_bits,
    )
    return codes, as_scales(layout.scale_format, scales, shared)


def _fake(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    codes = torch.empty(
        x.shape, dtype=torch.int8 if FORMATS[format].is_integer else torch.uint8, device=x.device
    )
    scales = torch.empty(scales_shape(x.shape, block), dtype=scale_dtype(scale_format), device=x.device)
    return codes, scales, torch.empty((), dtype=torch.float32, device=x.device)


# The third result is the tensor's scale: 1 unless the format is nvfp4.
OPERATION = Operation(
    "quantize",
    schema="(Tensor x, str format, *, SymInt[]? block, str scale_format, str rounding, Tensor? random_bits)"
    " -> (Tensor, Tensor, Tensor)",
    check=check_quantizer,
    fake=_fake,
)
