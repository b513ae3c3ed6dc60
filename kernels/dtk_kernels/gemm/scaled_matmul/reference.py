"""Scaled matrix product in plain torch, in float64: the oracle of the other implementations."""

import torch

from dtk_kernels.gemm._operands import operand_values

__all__ = ["scaled_matmul"]


def scaled_matmul(
    a_codes: torch.Tensor,
    a_scales: torch.Tensor,
    b_codes: torch.Tensor,
    b_scales: torch.Tensor,
    a_format: str,
    b_format: str,
    *,
    block_size: int,
) -> torch.Tensor:
    """Return `A @ B.T` of the dequantised operands, rounded once."""
    depth = a_scales.shape[1] * block_size
    a = operand_values(a_codes, a_scales, a_format, depth=depth, block_size=block_size)
    b = operand_values(b_codes, b_scales, b_format, depth=depth, block_size=block_size)
    return (a @ b.T).float()
