"""Unpack: the 4-bit codes of packed bytes."""

import torch

from dtk_kernels._checks import require_count, require_dtype, require_flag
from dtk_kernels._operation import Operation
from dtk_kernels.quant._arguments import check_elements

__all__ = ["unpack"]


def unpack(
    packed: torch.Tensor, count: int, *, signed: bool = False, implementation: str | None = None
) -> torch.Tensor:
    """Undo `pack`.

    Args:
        packed: uint8 `[..., ceil(count / 2)]`, any strides.
        count: Codes in the last dim; the last nibble is dropped if odd.
        signed: Whether codes are integers (int4), which come out as int8 with their sign, and not as uint8.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        `[..., count]`, uint8 or, if signed, int8; contiguous.

    Raises:
        ValueError: Shape, dtype or count does not fit.
        TypeError: An argument is of the wrong type.
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(implementation, packed, count, signed=signed)
    return result


def _check(packed: torch.Tensor, count: int, *, signed: bool = False) -> None:
    check_elements(packed=packed)
    require_dtype((torch.uint8,), packed=packed)
    require_count("count", count)
    require_flag(signed=signed)
    if packed.shape[-1] != (count + 1) // 2:
        raise ValueError(
            f"count must be {2 * packed.shape[-1]} or one less for packed of shape {list(packed.shape)},"
            f" got {count}"
        )


def _fake(packed: torch.Tensor, count: int, *, signed: bool = False) -> torch.Tensor:
    dtype = torch.int8 if signed else torch.uint8
    return torch.empty((*packed.shape[:-1], count), dtype=dtype, device=packed.device)


OPERATION = Operation(
    "unpack",
    schema="(Tensor packed, SymInt count, *, bool signed=False) -> Tensor",
    check=_check,
    fake=_fake,
)
