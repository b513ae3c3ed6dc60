"""Merge of partial results by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view

__all__ = ["merge_partials"]


def merge_partials(outputs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean of `outputs` weighted by exp(lse), and the log-sum-exp of `lses`."""
    require_cpu(outputs=outputs)
    num_partials, head_dim = outputs.shape[0], outputs.shape[-1]
    output, lse = outputs.new_empty(outputs.shape[1:]), lses.new_empty(lses.shape[1:])
    flat_outputs = outputs.contiguous().view(num_partials, lse.numel(), head_dim)
    flat_lses = lses.contiguous().view(num_partials, lse.numel())
    _native.merge_partials(view(flat_outputs), view(flat_lses), view(output), view(lse))
    return output, lse
