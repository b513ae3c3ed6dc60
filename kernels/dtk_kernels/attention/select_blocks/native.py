"""Selection of blocks by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view

__all__ = ["select_blocks"]


def select_blocks(
    scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the columns of the `num_selected` best scores, ascending, forced ones always in, -1 padded."""
    require_cpu(scores=scores)
    dense = scores.contiguous()
    dense_forced = None if forced is None else forced.contiguous()
    selected = torch.empty((*scores.shape[:2], num_selected), dtype=torch.int32, device="cpu")
    _native.select_blocks(view(dense), None if dense_forced is None else view(dense_forced), view(selected))
    return selected
