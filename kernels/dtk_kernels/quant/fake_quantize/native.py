"""Fake quantise by the compiled module: each block is read, rounded and written while it is in the cache."""

from collections.abc import Sequence

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view
from dtk_kernels.quant._native_arguments import as_matrices, native_block, native_format, native_scale_rule

__all__ = ["fake_quantize", "prepare"]


def fake_quantize(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> torch.Tensor:
    """Return `x` rounded to the format and back, in its dtype."""
    call = prepare(
        x, format, block=block, scale_format=scale_format, rounding=rounding, random_bits=random_bits
    )
    _native.fake_quantize(*call.arguments)
    return call.result


def prepare(
    x: torch.Tensor,
    format: str,
    *,
    block: Sequence[int] | None,
    scale_format: str,
    rounding: str,
    random_bits: torch.Tensor | None,
) -> NativeCall[torch.Tensor]:
    """Return the call that fills the values."""
    require_cpu(x=x)
    values = x.new_empty(x.shape)
    matrices = as_matrices(x)
    random = None if random_bits is None else random_bits.contiguous()
    arguments = (
        view(matrices),
        None if random is None else view(random),
        native_format(format),
        native_block(block),
        native_scale_rule(format, scale_format),
        view(values),
    )
    return NativeCall(arguments, values, (matrices, values, *(() if random is None else (random,))))
