"""Pack: two 4-bit codes in a byte."""

import torch

from dtk_kernels._checks import require_dtype
from dtk_kernels._operation import Operation
from dtk_kernels.quant._arguments import check_elements

__all__ = ["pack"]


def pack(codes: torch.Tensor, *, implementation: str | None = None) -> torch.Tensor:
    """Put two 4-bit codes into each byte: the element of even index in the low nibble.

    Args:
        codes: `[..., count]`, uint8 (e2m1) or int8 (int4), any strides; only the low four bits of each are
            kept.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        uint8 `[..., ceil(count / 2)]`, contiguous; the high nibble behind an odd count is 0.

    Raises:
        ValueError: Shape or dtype does not fit.
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(implementation, codes)
    return result


def _check(codes: torch.Tensor) -> None:
    check_elements(codes=codes)
    require_dtype((torch.uint8, torch.int8), codes=codes)


def _fake(codes: torch.Tensor) -> torch.Tensor:
    shape = (*codes.shape[:-1], (codes.shape[-1] + 1) // 2)
    return torch.empty(shape, dtype=torch.uint8, device=codes.device)


OPERATION = Operation("pack", schema="(Tensor codes) -> Tensor", check=_check, fake=_fake)
