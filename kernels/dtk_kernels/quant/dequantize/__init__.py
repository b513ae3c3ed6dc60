"""Dequantise: the values that codes and block scales stand for."""

from collections.abc import Sequence
from types import EllipsisType

import torch

from dtk_kernels._checks import require_dtype, require_same_device, require_tensors
from dtk_kernels._operation import Operation
from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._arguments import Block, check_block, check_elements, check_format, resolve
from dtk_kernels.quant._blocks import scales_shape
from dtk_kernels.quant._scales import SCALE_DTYPES, NvScales, Scales, scale_dtype

__all__ = ["dequantize"]


def dequantize(
    codes: torch.Tensor,
    scales: Scales,
    format: str,
    *,
    block: Block | EllipsisType = ...,
    implementation: str | None = None,
) -> torch.Tensor:
    """Return each code's value times its block's scale, in float32.

    A NaN scale makes its block NaN. The product is rounded to float32, and Inf beyond it: where a scale was
    rounded up, the largest element of a block near the end of float32's range may become Inf. For NVFP4 the
    factor of a block is first rounded to float32: value * (block scale * tensor scale).

    Args:
        codes: `[..., rows, columns]` as `quantize` returns them, any strides: int8 for "int8" and "int4",
            else uint8. Of a float format narrower than 8 bits, the bits above are ignored.
        scales: As `quantize` returns them: float32, bfloat16 or float8_e8m0fnu in the shape that belongs to
            `block`, or `NvScales`.
        format: As for `quantize`.
        block: As for `quantize`.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        float32 in the shape of `codes`, contiguous.

    Raises:
        ValueError: An argument is unknown, does not fit or contradicts a preset; the text names it.
        TypeError: `block` is missing, or an argument is of the wrong type.
        NotImplementedError: The named implementation is missing here.
    """
    layout = resolve(format, block, None)
    block_scales, shared = _parts(scales)
    if format != layout.format:
        _require_dtype_of_preset(block_scales, layout.scale_format, format)
    result: torch.Tensor = OPERATION(
        implementation, codes, block_scales, layout.format, block=layout.block, tensor_scale=shared
    )
    return result


def _parts(scales: Scales) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not isinstance(scales, NvScales):
        if not isinstance(scales, torch.Tensor):
            raise TypeError(f"scales must be a tensor or NvScales, got {type(scales).__name__}")
        return scales, None
    require_tensors(**{"scales.block": scales.block, "scales.tensor": scales.tensor})
    if scales.tensor.dim():
        raise ValueError(f"scales.tensor must have shape [], got {list(scales.tensor.shape)}")
    require_dtype((torch.float32,), **{"scales.tensor": scales.tensor})
    return scales


def _require_dtype_of_preset(scales: torch.Tensor, scale_format: str, format: str) -> None:
    wanted = scale_dtype(scale_format)
    if scales.dtype != wanted:
        wanted_name, name = (str(dtype).removeprefix("torch.") for dtype in (wanted, scales.dtype))
        raise ValueError(f"scales must be {wanted_name} for format {format!r}, got {name}")


def _check(
    codes: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    tensor_scale: torch.Tensor | None,
) -> None:
    check_elements(codes=codes)
    require_tensors(scales=scales)
    check_format(format)
    check_block(block)
    require_dtype((torch.int8 if FORMATS[format].is_integer else torch.uint8,), codes=codes)
    if tensor_scale is None:
        if scales.dtype == torch.float8_e4m3fn:
            raise ValueError("scales of dtype float8_e4m3fn must come with the tensor's scale, as NvScales")
        require_dtype(SCALE_DTYPES[:3], scales=scales)
    else:
        require_tensors(tensor_scale=tensor_scale)
        require_dtype((torch.float8_e4m3fn,), scales=scales)
        require_dtype((torch.float32,), tensor_scale=tensor_scale)
        if tensor_scale.dim():
            raise ValueError(f"tensor_scale must have shape [], got {list(tensor_scale.shape)}")
        require_same_device(codes=codes, tensor_scale=tensor_scale)
    wanted = scales_shape(codes.shape, block)
    if tuple(scales.shape) != wanted:
        raise ValueError(
            f"scales must have shape {list(wanted)} for codes of shape {list(codes.shape)} and their block,"
            f" got {list(scales.shape)}"
        )
    require_same_device(codes=codes, scales=scales)


def _fake(
    codes: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    tensor_scale: torch.Tensor | None,
) -> torch.Tensor:
    return torch.empty(codes.shape, dtype=torch.float32, device=codes.device)


OPERATION = Operation(
    "dequantize",
    schema="(Tensor codes, Tensor scales, str format, *, SymInt[]? block, Tensor? tensor_scale) -> Tensor",
    check=_check,
    fake=_fake,
)
