"""What the compiled module gets: tensors as dense matrices, formats and scale rules as its own objects."""

import math
from collections.abc import Sequence
from functools import cache

import torch

from dtk_kernels import _native
from dtk_kernels.formats import FORMATS, e8m0_addend

__all__ = ["as_matrices", "as_rows", "native_block", "native_format", "native_scale_rule"]


@cache
def native_format(name: str) -> _native.NumberFormat:
    """Return an element format."""
    format = FORMATS[name]
    return _native.NumberFormat(
        bits=format.bits,
        mantissa_bits=format.mantissa_bits,
        min_exponent=format.min_exponent,
        max_exponent=format.max_exponent,
        max_code=format.max_code,
        infinity_code=format.infinity_code,
        first_nan_code=format.first_nan_code,
        is_integer=format.is_integer,
        largest=format.max,
    )


@cache
def native_scale_rule(format: str, scale_format: str) -> _native.ScaleRule:
    """Return how a block's largest magnitude becomes its scale."""
    if scale_format.startswith("e8m0"):
        return _native.ScaleRule(_native.ScaleFormat.e8m0, e8m0_addend(FORMATS[format], scale_format))
    return _native.ScaleRule(getattr(_native.ScaleFormat, scale_format), 0)


def native_block(block: Sequence[int] | None) -> tuple[int, int] | None:
    """Return the block as a pair."""
    return None if block is None else (block[0], block[1])


def as_matrices(x: torch.Tensor) -> torch.Tensor:
    """Return x as `[matrices, rows, columns]`, columns side by side in memory; a view if it can be one."""
    shape = x.shape if x.dim() > 1 else (1, *x.shape)
    return _columns_together(x.reshape(math.prod(shape[:-2]), *shape[-2:]))


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """Return x as `[rows, columns]`, likewise."""
    return _columns_together(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]))


def _columns_together(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] < 2 else x.contiguous()
