"""Calls into the compiled module: what a tensor looks like from there."""

from typing import Any, Generic, NamedTuple, TypeVar

import torch

__all__ = ["NativeCall", "View", "require_cpu", "view"]

_Result = TypeVar("_Result")

View = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]

# enum DType of csrc/kernels/kernels.hpp; everything else is 3, "other".
_DTYPE_CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


class NativeCall(NamedTuple, Generic[_Result]):
    """A call of a compiled function, ready to be made now or by a thread.

    Attributes:
        arguments: What the function takes.
        result: What the public function returns; the call fills it.
        held: The tensors that the arguments point into, which must live until the call has ended.
    """

    arguments: tuple[Any, ...]
    result: _Result
    held: tuple[torch.Tensor, ...]


def view(tensor: torch.Tensor) -> View:
    """Describe a tensor to the compiled module, which keeps no reference: the caller must.

    Raises:
        ValueError: It is not in host memory, or its bytes there are not its values.
    """
    if not tensor.is_cpu:  # a pointer to somewhere else would end the process
        raise ValueError(f"native kernels read and write host memory, got a tensor on {tensor.device}")
    if tensor.is_neg() or tensor.is_conj():
        raise ValueError(
            "native kernels read memory as it is; resolve_neg() or resolve_conj() the tensor first"
        )
    return (
        tensor.data_ptr(),
        _DTYPE_CODES.get(tensor.dtype, 3),
        tensor.element_size(),
        tensor.shape,
        tensor.stride(),
    )


def require_cpu(**tensors: torch.Tensor | None) -> None:
    """Raise ValueError unless every tensor is in host memory."""
    for argument, tensor in tensors.items():
        if tensor is not None and not tensor.is_cpu:
            raise ValueError(
                f"{argument} must be a CPU tensor for native kernels, got one on {tensor.device}"
            )
