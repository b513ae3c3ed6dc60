"""Packed linear in plain torch, in float64: the oracle of the other implementations."""

import torch

from dtk_kernels.gemm._operands import operand_values

__all__ = ["packed_linear"]


def packed_linear(
    x: torch.Tensor,
    packed_weight: torch.Tensor,
    scales: torch.Tensor,
    format: str,
    *,
    block_size: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return `x @ W.T + bias` of the dequantised weights W, rounded once."""
    weight = operand_values(packed_weight, scales, format, depth=x.shape[-1], block_size=block_size)
    product = x.double() @ weight.T
    return (product if bias is None else product + bias).float()
