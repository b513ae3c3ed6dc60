"""Checks of what tables hold, for the torch references. The native code checks while it reads."""

import torch

__all__ = ["require_distinct_ids", "require_ids_in_range", "require_lengths_in_range"]


def require_ids_in_range(argument: str, ids: torch.Tensor, num_pool_blocks: int) -> None:
    """Raise ValueError unless every id is -1 or in 0..num_pool_blocks-1."""
    bad = ids[(ids < -1) | (ids >= num_pool_blocks)]
    if bad.numel():
        raise ValueError(
            f"{argument} holds {int(bad[0])}; ids are -1 (no block) or below {num_pool_blocks}, the pool size"
        )


def require_lengths_in_range(
    block_lengths: torch.Tensor, block_size: int, *, used: torch.Tensor | None = None
) -> None:
    """Raise ValueError unless every length is in 0..block_size (only where `used`, if that is given)."""
    bad_mask = (block_lengths < 0) | (block_lengths > block_size)
    bad = block_lengths[bad_mask if used is None else bad_mask & used]
    if bad.numel():
        raise ValueError(
            f"block_lengths holds {int(bad[0])}; lengths must be in 0..{block_size}, the block size"
        )


def require_distinct_ids(argument: str, ids: torch.Tensor) -> None:
    """Raise ValueError if an id other than -1 occurs twice: the order of writes would matter."""
    ordered = ids[ids >= 0].sort().values
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.numel():
        raise ValueError(
            f"{argument} holds {int(repeated[0])} more than once; a block can be written only once"
        )
