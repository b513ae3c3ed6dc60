"""Quantise by the compiled module."""

from collections.abc import Sequence

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view
from dtk_kernels.quant._native_arguments import as_matrices, native_block, native_format, native_scale_rule
from dtk_kernels.quant.quantize import OPERATION

__all__ = ["prepare", "quantize"]

_Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> _Result:
    """Return codes, block scales and the tensor's scale (1 unless the scale format is nvfp4)."""
    call = prepare(
        x, format, block=block, scale_format=scale_format, rounding=rounding, random_bits=random_bits
    )
    _native.quantize(*call.arguments)
    return call.result


def prepare(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> NativeCall[_Result]:
    """Return the call that fills codes, block scales and the tensor's scale."""
    require_cpu(x=x)
    result: _Result = OPERATION.fake(
        x, format, block=block, scale_format=scale_format, rounding=rounding, random_bits=random_bits
    )
    matrices = as_matrices(x)
    random = None if random_bits is None else random_bits.contiguous()
    arguments = (
        view(matrices),
        None if random is None else view(random),
        native_format(format),
        native_block(block),
        native_scale_rule(format, scale_format),
        *map(view, result),
    )
    return NativeCall(arguments, result, (matrices, *result, *(() if random is None else (random,))))
