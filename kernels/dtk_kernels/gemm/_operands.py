"""Quantised matrices as arguments: their checks, and the values that they stand for."""

import torch

from dtk_kernels._checks import require_contiguous_last_dim, require_count, require_dtype, require_shapes
from dtk_kernels.formats import FORMATS
from dtk_kernels.quant._rounding import codes_to_values
from dtk_kernels.quant._scales import SCALE_DTYPES
from dtk_kernels.quant.unpack.reference import unpack

__all__ = ["bytes_of", "check_operand", "is_packed", "operand_values"]


def is_packed(format: str) -> bool:
    """Return whether two codes of a format share a byte."""
    return FORMATS[format].bits == 4


def bytes_of(depth: int, format: str) -> int:
    """Return the bytes in a row of so many codes."""
    return (depth + 1) // 2 if is_packed(format) else depth


def check_operand(
    name: str,
    codes: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    depth: int,
    block_size: int,
    scale_dtypes: tuple[torch.dtype, ...] = SCALE_DTYPES,
) -> None:
    """Raise TypeError or ValueError unless codes and scales are rows of `depth` elements in that format.

    Args:
        name: The codes' argument: `packed_weight`, whose scales are `scales`, or `a_codes` with `a_scales`.
        codes: `[rows, bytes]`.
        scales: `[rows, depth / block_size]`.
        format: Name in `FORMATS`.
        depth: Elements in a row.
        block_size: Neighbouring elements that share a scale.
        scale_dtypes: The dtypes that scales may have.
    """
    scales_name = "scales" if name == "packed_weight" else name.replace("codes", "scales")
    require_shapes(**{name: (codes, ("rows", "bytes")), scales_name: (scales, ("rows", "blocks"))})
    require_count("block_size", block_size, at_least=1)
    if depth < 1 or depth % block_size:
        raise ValueError(f"block_size must divide the {depth} elements of a row, got {block_size}")
    if block_size % 16 and block_size != depth:
        raise ValueError(f"block_size must be a multiple of 16 or the whole row ({depth}), got {block_size}")
    integers = FORMATS[format].is_integer and not is_packed(format)
    require_dtype((torch.int8 if integers else torch.uint8,), **{name: codes})
    require_dtype(scale_dtypes, **{scales_name: scales})
    if codes.shape[1] != bytes_of(depth, format):
        raise ValueError(
            f"{name} must have {bytes_of(depth, format)} bytes in a row of {depth} {format} codes,"
            f" got shape {list(codes.shape)}"
        )
    if scales.shape[1] != depth // block_size:
        raise ValueError(
            f"{scales_name} must have {depth // block_size} in a row, one for each {block_size} elements,"
            f" got shape {list(scales.shape)}"
        )
    require_contiguous_last_dim(**{name: codes, scales_name: scales})


def operand_values(
    codes: torch.Tensor, scales: torch.Tensor, format: str, *, depth: int, block_size: int
) -> torch.Tensor:
    """Return the values of a quantised matrix in float64 `[rows, depth]`; a code times its scale is exact."""
    if is_packed(format):
        codes = unpack(codes, depth, signed=FORMATS[format].is_integer)
    factors = scales.to(torch.float32).double().repeat_interleave(block_size, dim=1)
    return codes_to_values(codes, FORMATS[format]).double() * factors
