"""Random Hadamard transform: spreads outliers over a block before it is quantised (arXiv 2402.04396)."""

import torch

from dtk_kernels._checks import (
    FLOAT_DTYPES,
    require_count,
    require_dtype,
    require_flag,
    require_same_device,
    require_tensors,
)
from dtk_kernels._operation import Operation
from dtk_kernels.quant._arguments import check_elements

__all__ = ["MAX_SIZE", "hadamard"]

MAX_SIZE = 4096


def hadamard(
    x: torch.Tensor,
    signs: torch.Tensor,
    *,
    size: int,
    inverse: bool = False,
    implementation: str | None = None,
) -> torch.Tensor:
    """Transform blocks of the last dim by signs and an orthonormal Walsh-Hadamard matrix.

    Each block v of `size` elements becomes H (signs * v) / sqrt(size), H[i, j] = (-1)^popcount(i & j); the
    inverse is signs * (H v / sqrt(size)). The arithmetic is float32: butterflies (a, b) -> (a + b, a - b) of
    stride 1, 2, 4, ..., then the product with the float32 number nearest to 1/sqrt(size). Every
    implementation gives the same bits. Two tensors transformed with the same signs keep their inner products
    along this dim.

    Args:
        x: `[..., n]`, float32, float16 or bfloat16, any strides.
        signs: float32 `[size]` of +1 and -1; other values are multiplied with as they are.
        size: A power of two up to 4096 that divides n.
        inverse: Whether to undo the transform.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        Shape and dtype of `x`, contiguous.

    Raises:
        ValueError: A shape, dtype, device or size does not fit.
        TypeError: An argument is of the wrong type.
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(implementation, x, signs, size=size, inverse=inverse)
    return result


def _check(x: torch.Tensor, signs: torch.Tensor, *, size: int, inverse: bool = False) -> None:
    check_elements(x=x)
    require_tensors(signs=signs)
    require_dtype(FLOAT_DTYPES, x=x)
    require_dtype((torch.float32,), signs=signs)
    require_flag(inverse=inverse)
    require_count("size", size, at_least=1)
    if size > MAX_SIZE or size & (size - 1):
        raise ValueError(f"size must be a power of two, at most {MAX_SIZE}, got {size}")
    if x.shape[-1] % size:
        raise ValueError(f"size must divide the last dim of x ({x.shape[-1]}), got {size}")
    if tuple(signs.shape) != (size,):
        raise ValueError(f"signs must have shape [{size}], got {list(signs.shape)}")
    require_same_device(x=x, signs=signs)


def _fake(x: torch.Tensor, signs: torch.Tensor, *, size: int, inverse: bool = False) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


OPERATION = Operation(
    "hadamard",
    schema="(Tensor x, Tensor signs, *, int size, bool inverse=False) -> Tensor",
    check=_check,
    fake=_fake,
)
