"""Random Hadamard transform in plain torch: the oracle of the other implementations."""

import torch

__all__ = ["hadamard"]


def hadamard(x: torch.Tensor, signs: torch.Tensor, *, size: int, inverse: bool = False) -> torch.Tensor:
    """Return the blocks of the last dim, transformed or transformed back."""
    blocks = x.float().reshape(-1, size)
    if not inverse:
        blocks = blocks * signs
    stride = 1
    while stride < size:
        pairs = blocks.reshape(-1, size // (2 * stride), 2, stride)
        even, odd = pairs[:, :, 0], pairs[:, :, 1]
        blocks = torch.stack((even + odd, even - odd), dim=2).reshape(-1, size)
        stride *= 2
    blocks = blocks * blocks.new_tensor(size**-0.5)
    if inverse:
        blocks = blocks * signs
    return blocks.reshape(x.shape).to(x.dtype)
