"""Scales as tensors: which dtype stands for which scale format, and what factor a block's elements have."""

from typing import NamedTuple

import torch

__all__ = ["SCALE_DTYPES", "NvScales", "Scales", "as_scales", "scale_dtype"]


class NvScales(NamedTuple):
    """The two-level scales of NVFP4; a block's factor is the product of both, rounded to float32.

    Attributes:
        block: float8_e4m3fn, one for each block; never negative.
        tensor: float32 `[]`, one for the whole tensor.
    """

    block: torch.Tensor
    tensor: torch.Tensor


Scales = torch.Tensor | NvScales

SCALE_DTYPES = (torch.float32, torch.bfloat16, torch.float8_e8m0fnu, torch.float8_e4m3fn)


def scale_dtype(scale_format: str) -> torch.dtype:
    """Return the dtype of the block scales of a scale format."""
    if scale_format.startswith("e8m0"):
        return torch.float8_e8m0fnu
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "nvfp4": torch.float8_e4m3fn}[scale_format]


def as_scales(scale_format: str, block: torch.Tensor, tensor: torch.Tensor) -> Scales:
    """Return the scales of the blocks and of the tensor as callers get them."""
    return NvScales(block, tensor) if scale_format == "nvfp4" else block
