"""What callers may write, and what implementations get: presets resolved, every block as a pair of sizes."""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NamedTuple

import torch

from dtk_kernels._checks import (
    FLOAT_DTYPES,
    require_count,
    require_dtype,
    require_one_of,
    require_same_device,
    require_tensors,
)
from dtk_kernels.formats import FORMATS, PRESETS, ROUNDINGS, SCALE_FORMATS

__all__ = [
    "MAX_BLOCK",
    "Block",
    "Layout",
    "check_block",
    "check_elements",
    "check_format",
    "check_quantizer",
    "resolve",
]

Block = tuple[int | None, int | None] | None

MAX_BLOCK = 1 << 16


class Layout(NamedTuple):
    """Format, block and scale format, with presets resolved.

    Attributes:
        format: Name in `FORMATS`.
        block: Rows and columns of a block, 0 for the whole dim; None for one block.
        scale_format: Name in `SCALE_FORMATS`.
    """

    format: str
    block: tuple[int, int] | None
    scale_format: str


def resolve(format: str, block: Block | EllipsisType, scale_format: str | None) -> Layout:
    """Resolve a preset; raise ValueError or TypeError where something is missing or contradicts it."""
    if not isinstance(format, str):
        raise TypeError(f"format must be a string, got {type(format).__name__}")
    preset = PRESETS.get(format)
    if preset is None:
        if isinstance(block, EllipsisType):
            check_format(format)
            raise TypeError(f"block is required for format {format!r}; only {', '.join(PRESETS)} have one")
        return Layout(format, _sizes(block), "fp32" if scale_format is None else scale_format)
    if not isinstance(block, EllipsisType) and _sizes(block) != preset.block:
        raise ValueError(f"block must be {preset.block} or left out for format {format!r}, got {block!r}")
    if scale_format is None:
        scale_format = preset.scale_formats[0]
    elif scale_format not in preset.scale_formats:
        allowed = " or ".join(preset.scale_formats)
        raise ValueError(f"scale_format must be {allowed} for format {format!r}, got {scale_format!r}")
    return Layout(preset.format, preset.block, scale_format)


def _sizes(block: Any) -> tuple[int, int] | None:
    if block is None:
        return None
    if not isinstance(block, tuple | list) or len(block) != 2:
        raise ValueError(f"block must be None or a pair (rows, columns), got {block!r}")
    for size in block:
        if size is not None:
            require_count("block", size, at_least=1)
    rows, columns = (0 if size is None else size for size in block)
    return rows, columns


def check_format(format: str) -> None:
    """Raise ValueError unless an element format has that name."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join([*FORMATS, *PRESETS])}, got {format!r}")


def check_block(block: Sequence[int] | None) -> None:
    """Raise ValueError unless the sizes of a resolved block are allowed."""
    if block is None:
        return
    if len(block) != 2:
        raise ValueError(f"block must have two sizes, got {list(block)}")
    for size in block:
        require_count("block", size)
        if size > MAX_BLOCK:
            raise ValueError(
                f"block must have at most {MAX_BLOCK} rows and columns (None for the whole dim), got {size}"
            )


def check_elements(**tensors: torch.Tensor) -> None:
    """Raise unless every argument is a dense tensor with at least one dim."""
    require_tensors(**tensors)
    for argument, tensor in tensors.items():
        if tensor.dim() < 1:
            raise ValueError(f"{argument} must have at least one dim, got shape []")


def check_quantizer(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> None:
    """Raise ValueError or TypeError where the arguments of quantize and fake_quantize do not fit."""
    check_elements(x=x)
    require_dtype(FLOAT_DTYPES, x=x)
    check_format(format)
    check_block(block)
    require_one_of(SCALE_FORMATS, scale_format=scale_format)
    require_one_of(ROUNDINGS, rounding=rounding)
    if rounding == "nearest":
        if random_bits is not None:
            raise ValueError("random_bits must be None for rounding 'nearest'")
        return
    if random_bits is None:
        raise ValueError("random_bits is required for rounding 'stochastic'")
    require_tensors(random_bits=random_bits)
    require_dtype((torch.int32,), random_bits=random_bits)
    if random_bits.shape != x.shape:
        raise ValueError(
            f"random_bits must have the shape of x ({list(x.shape)}), got {list(random_bits.shape)}"
        )
    require_same_device(x=x, random_bits=random_bits)
