"""Random quantised operands, and what they stand for by another library's number formats."""

import math

import ml_dtypes
import numpy as np
import torch
from hypothesis import strategies as st

__all__ = ["operand", "operand_values", "seeds", "within"]

seeds = st.integers(0, 2**32 - 1)

_DTYPES = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "int8": np.int8,
    "int4": ml_dtypes.int4,
}
_BITS = {"e2m1": 4, "int4": 4, "e3m2": 6, "e2m3": 6}


def operand(
    rows: int, depth: int, format: str, scale_dtype: torch.dtype, block_size: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes, packed if of 4 bits, and finite scales, both inside of larger, poisoned tensors."""
    shape = (rows, depth)
    if format == "int8":
        codes = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    else:
        codes = torch.randint(0, 2 ** _BITS.get(format, 8), shape, generator=generator, dtype=torch.uint8)
        finite = torch.from_numpy(np.isfinite(_decode(codes.numpy(), format)))
        codes = torch.where(finite, codes, 1)
    if _BITS.get(format) == 4:
        padded = torch.nn.functional.pad(codes, (0, depth % 2))
        codes = padded[:, ::2] | (padded[:, 1::2] << 4)
    num_scales = depth // block_size
    if scale_dtype in (torch.float32, torch.bfloat16):
        scales = torch.empty((rows, num_scales)).uniform_(0.5, 2.0, generator=generator).to(scale_dtype)
    else:
        one = 127 if scale_dtype == torch.float8_e8m0fnu else 0x38
        near = torch.randint(one - 3, one + 4, (rows, num_scales), generator=generator, dtype=torch.uint8)
        scales = near.view(scale_dtype)
    return _inside_poison(codes), _inside_poison(scales)


def operand_values(codes: torch.Tensor, scales: torch.Tensor, format: str, depth: int) -> torch.Tensor:
    """Return the operand in float64."""
    unpacked = codes.numpy()
    if _BITS.get(format) == 4:
        unpacked = np.stack([unpacked & 15, unpacked >> 4], axis=-1).reshape(
            len(unpacked), 2 * unpacked.shape[1]
        )[:, :depth]
    values = torch.from_numpy(_decode(unpacked, format))
    factors = scales.float().double()
    return values * factors.repeat_interleave(depth // max(scales.shape[1], 1), dim=1)


def within(computed: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor) -> bool:
    """Return whether every error is within its bound; NaN is not."""
    return bool(((computed.double() - expected).abs() <= bound).all())


def _decode(codes: np.ndarray, format: str) -> np.ndarray:
    return np.ascontiguousarray(codes).view(np.uint8).view(_DTYPES[format]).astype(np.float64)


def _inside_poison(tensor: torch.Tensor) -> torch.Tensor:
    rows, columns = tensor.shape
    larger = torch.full((rows + 2, columns + 5), 0xFF, dtype=torch.uint8)
    if tensor.element_size() > 1:
        larger = torch.full((rows + 2, columns + 5), math.nan, dtype=tensor.dtype)
    larger = larger.view(tensor.dtype)
    inner = larger[1 : rows + 1, 3 : columns + 3]
    inner.view(torch.uint8).copy_(tensor.view(torch.uint8))
    return inner
