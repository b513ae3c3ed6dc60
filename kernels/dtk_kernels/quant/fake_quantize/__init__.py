"""Fake quantise: a tensor rounded to a number format and back in one pass, without its codes."""

from collections.abc import Sequence
from types import EllipsisType

import torch

from dtk_kernels._operation import Operation
from dtk_kernels.quant._arguments import Block, check_quantizer, resolve

__all__ = ["fake_quantize"]


def fake_quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Block | EllipsisType = ...,
    scale_format: str | None = None,
    rounding: str = "nearest",
    random_bits: torch.Tensor | None = None,
    implementation: str | None = None,
) -> torch.Tensor:
    """Return what `dequantize` makes of what `quantize` makes of a tensor, in the tensor's dtype.

    Bit for bit the same, then rounded from float32 to the dtype (to nearest even, Inf beyond its range). Only
    the result is written.

    Args:
        x: As for `quantize`.
        format: As for `quantize`.
        block: As for `quantize`.
        scale_format: As for `quantize`.
        rounding: As for `quantize`.
        random_bits: As for `quantize`.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        Shape and dtype of `x`, contiguous.

    Raises:
        ValueError: An argument is unknown, does not fit or contradicts a preset; the text names it.
        TypeError: `block` is missing, or an argument is of the wrong type.
        NotImplementedError: The named implementation is missing here.
    """
    layout = resolve(format, block, scale_format)
    result: torch.Tensor = OPERATION(
        implementation,
        x,
        layout.format,
        block=layout.block,
        scale_format=layout.scale_format,
        rounding=rounding,
        random_bits=random_bits,
    )
    return result


def _fake(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


OPERATION = Operation(
    "fake_quantize",
    schema="(Tensor x, str format, *, SymInt[]? block, str scale_format, str rounding, Tensor? random_bits)"
    " -> Tensor",
    check=check_quantizer,
    fake=_fake,
)
