"""Blocks of a tensor: how many there are, the largest magnitude in each, a factor spread over each.

A block is `(rows, columns)` of the last two dims, 0 meaning the whole dim, or None for one block. The last
block along a dim may be short; nothing is padded as far as values go.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

__all__ = ["block_amax", "scales_shape", "spread"]


def scales_shape(shape: Sequence[int], block: Sequence[int] | None) -> tuple[int, ...]:
    """Return the shape of the block scales of a tensor of that shape: one for each block."""
    if block is None:
        return ()
    sizes = block[-min(len(shape), 2) :]  # a vector is one row, whose dim the scales leave out, too
    counts = (_count(length, size) for length, size in zip(shape[-2:], sizes, strict=True))
    return (*shape[:-2], *counts)


def _count(length: int, size: int) -> int:
    return -(-length // size) if size else min(length, 1)


def block_amax(x: torch.Tensor, block: Sequence[int] | None) -> torch.Tensor:
    """Return the largest magnitude in each block, in the shape of its scales; NaN where one is not finite."""
    lead, rows, columns, height, width = _as_matrices(x.shape, block)
    num_down, num_across = -(-rows // height), -(-columns // width)
    matrices = x.abs().reshape(lead, rows, columns)
    # Zeros to the right and below change no largest magnitude.
    padded = F.pad(matrices, (0, num_across * width - columns, 0, num_down * height - rows))
    amax = padded.reshape(lead, num_down, height, num_across, width).amax(dim=(2, 4))
    amax = amax.masked_fill(~amax.isfinite(), math.nan)
    if block is None:  # an empty tensor has one block, too, with nothing in it
        amax = amax if amax.numel() else amax.new_zeros(1)
    return amax.reshape(scales_shape(x.shape, block))


def spread(scales: torch.Tensor, shape: torch.Size, block: Sequence[int] | None) -> torch.Tensor:
    """Return each block's scale at every element of a tensor of that shape."""
    if block is None:
        return scales.expand(shape)
    _, rows, columns, height, width = _as_matrices(shape, block)
    if len(shape) > 1:
        scales = scales.repeat_interleave(height, dim=-2)[..., :rows, :]
    return scales.repeat_interleave(width, dim=-1)[..., :columns]


def _as_matrices(shape: Sequence[int], block: Sequence[int] | None) -> tuple[int, int, int, int, int]:
    """Return the tensor's shape as matrices `[lead, rows, columns]` and the height and width of a block."""
    if block is None:
        columns = math.prod(shape)
        return 1, 1, columns, 1, max(columns, 1)
    rows, columns = (1, *shape)[-2:]
    # A block that is larger than the tensor is one short block: padding it to its size could take gigabytes.
    height, width = min(block[0] or rows, rows), min(block[1] or columns, columns)
    return math.prod(shape[:-2]), rows, columns, max(height, 1), max(width, 1)
