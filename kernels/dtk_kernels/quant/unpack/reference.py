"""Unpack in plain torch: the oracle of the other implementations."""

import torch

__all__ = ["unpack"]


def unpack(packed: torch.Tensor, count: int, *, signed: bool = False) -> torch.Tensor:
    """Return the low and the high nibble of each byte, one after the other."""
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)[..., :count]
    if signed:
        codes = ((codes ^ 8).to(torch.int8)) - 8
    return codes.contiguous()
