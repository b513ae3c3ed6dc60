"""Block digest by the compiled module."""

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import NativeCall, require_cpu, view

__all__ = ["block_digest", "prepare"]


def block_digest(keys: torch.Tensor, block_lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the channel-wise (min, max) of the first `block_lengths[n]` keys of every block n."""
    call = prepare(keys, block_lengths)
    _native.block_digest(*call.arguments)
    return call.result


def prepare(keys: torch.Tensor, block_lengths: torch.Tensor) -> NativeCall[tuple[torch.Tensor, torch.Tensor]]:
    """Return the call that fills (key_min, key_max)."""
    require_cpu(keys=keys)
    lengths = block_lengths.contiguous()
    num_blocks, num_kv_heads, _, head_dim = keys.shape
    key_min, key_max = (keys.new_empty((num_blocks, num_kv_heads, head_dim)) for _ in range(2))
    arguments = (view(keys), view(lengths), view(key_min), view(key_max))
    return NativeCall(arguments, (key_min, key_max), (keys, lengths, key_min, key_max))
