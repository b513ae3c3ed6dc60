"""Scaled matrix product by the compiled module: tiles of values in float32, sums in float32."""

from functools import cache

import torch

from dtk_kernels import _native
from dtk_kernels._native_calls import require_cpu, view
from dtk_kernels.formats import FORMATS

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
    """Return `A @ B.T` of the dequantised operands."""
    require_cpu(a_codes=a_codes)
    output = a_codes.new_empty((a_codes.shape[0], b_codes.shape[0]), dtype=torch.float32)
    a_factors, b_factors = a_scales.to(torch.float32), b_scales.to(torch.float32)
    _native.scaled_matmul(
        view(a_codes),
        view(a_factors),
        view(_values(a_format)),
        view(b_codes),
        view(b_factors),
        view(_values(b_format)),
        block_size,
        view(output),
    )
    return output


@cache
def _values(format: str) -> torch.Tensor:
    """Return the value of each code as it is stored: of 16 nibbles or 256 bytes."""
    values = FORMATS[format].values
    count = 16 if FORMATS[format].bits == 4 else 256
    every = [values[code % len(values)] for code in range(count)]
    return torch.tensor(every, dtype=torch.float32, device="cpu")  # whatever the default device
