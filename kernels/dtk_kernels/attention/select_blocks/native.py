"""Selection of blocks by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view

__all__ = ["prepare", "select_blocks"]


def select_blocks(
    scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the columns of the `num_selected` best scores, ascending, forced ones always in, -1 padded."""
    call = prepare(scores, num_selected, forced=forced)
    _native.select_blocks(*call.arguments)
    return call.result


def prepare(
    scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None
) -> NativeCall[torch.Tensor]:
    """Return the call that fills the selection."""
    require_cpu(scores=scores)
    dense = scores.contiguous()
    selected = scores.new_empty((*scores.shape[:2], num_selected), dtype=torch.int32)
    if forced is None:
        return NativeCall((view(dense), None, view(selected)), selected, (dense, selected))
    dense_forced = forced.contiguous()
    arguments = (view(dense), view(dense_forced), view(selected))
    return NativeCall(arguments, selected, (dense, dense_forced, selected))
