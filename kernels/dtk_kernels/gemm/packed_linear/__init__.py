"""Packed linear: a linear layer whose weights stay in 4 or 8 bits, with one scale for each block of a row.

For one row of activations the time is that of reading the weights, which are an eighth or a quarter of
float32's bytes (plus scales).
"""

import torch

from dtk_kernels._checks import require_dtype, require_one_of, require_same_device, require_tensors
from dtk_kernels._operation import Operation
from dtk_kernels.gemm._operands import check_operand

__all__ = ["WEIGHT_FORMATS", "packed_linear"]

WEIGHT_FORMATS = ("e2m1", "int8")
"""The formats that weights may have."""


def packed_linear(
    x: torch.Tensor,
    packed_weight: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block_size: int,
    bias: torch.Tensor | None = None,
    implementation: str | None = None,
) -> torch.Tensor:
    """Return `x @ W.T + bias`, where W holds each code's value times its block's scale.

    The native implementation first rounds the activations to INT8, as `dtk_kernels.quant.quantize` does with
    `fp32` scales and blocks of 32 activations of a row (16 if block_size is less than K and no multiple of
    32): at most half a step, amax / 254 of the block, from each. It sums products of codes exactly within a
    block and blocks in float32. So its result differs from the exact one by at most::

        sum over blocks (amax(x) / 254 * sum |W|)  +  2^-23 * (K / 64 + 20) * sum |x| |W|;

    with Gaussian data the relative error is about 0.005. The reference rounds nothing but its float64 result;
    on a GPU the activations stay as they are and products have about float32's precision.
    An output does not depend on what else the call computes, bit for bit. NaN or Inf in a block of
    activations makes its row's results NaN, a NaN scale those of its weights.

    Args:
        x: float32 `[..., K]`.
        packed_weight: `[N, bytes]`, each row contiguous: uint8 with K / 2 bytes a row for "e2m1" (the even
            element in the low nibble), int8 with K bytes for "int8".
        scales: `[N, K / block_size]`, each row contiguous, float32 or float8_e8m0fnu.
        format: "e2m1" or "int8".
        block_size: Weights along K that share a scale, a divisor of K: a multiple of 16, or K itself for one
            scale a row.
        bias: float32 `[N]`.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        float32 `[..., N]`.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: A shape, dtype, device or stride does not fit, or the format is none of the two.
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(
        implementation, x, packed_weight, scales, format, block_size=block_size, bias=bias
    )
    return result


def _check(
    x: torch.Tensor,
    packed_weight: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block_size: int,
    bias: torch.Tensor | None = None,
) -> None:
    require_tensors(x=x)
    if x.dim() < 1:
        raise ValueError("x must have at least one dim, got shape []")
    require_dtype((torch.float32,), x=x)
    require_one_of(WEIGHT_FORMATS, format=format)
    check_operand(
        "packed_weight",
        packed_weight,
        scales,
        format,
        depth=x.shape[-1],
        block_size=block_size,
        scale_dtypes=(torch.float32, torch.float8_e8m0fnu),
    )
    require_same_device(x=x, packed_weight=packed_weight, scales=scales)
    if bias is not None:
        require_tensors(bias=bias)
        require_dtype((torch.float32,), bias=bias)
        require_same_device(x=x, bias=bias)
        if tuple(bias.shape) != (packed_weight.shape[0],):
            raise ValueError(
                f"bias must have shape [{packed_weight.shape[0]}], one for each row of packed_weight,"
                f" got {list(bias.shape)}"
            )


def _fake(
    x: torch.Tensor,
    packed_weight: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block_size: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], packed_weight.shape[0]))


OPERATION = Operation(
    "packed_linear",
    schema=(
        "(Tensor x, Tensor packed_weight, Tensor scales, str format, *, SymInt block_size,"
        " Tensor? bias=None) -> Tensor"
    ),
    check=_check,
    fake=_fake,
)
