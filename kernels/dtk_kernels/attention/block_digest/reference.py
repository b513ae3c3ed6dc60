"""Block digest in plain torch: the oracle of the other implementations."""

import torch

from dtk_kernels._table_checks import require_lengths_in_range

__all__ = ["block_digest"]


def block_digest(keys: torch.Tensor, block_lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the channel-wise (min, max) of the first `block_lengths[n]` keys of every block n."""
    block_size = keys.shape[2]
    require_lengths_in_range(block_lengths, block_size)
    position = torch.arange(block_size, device=keys.device)
    unused = (position >= block_lengths[:, None])[:, None, :, None]
    infinity = float("inf")
    return (
        keys.masked_fill(unused, infinity).amin(dim=2),
        keys.masked_fill(unused, -infinity).amax(dim=2),
    )
