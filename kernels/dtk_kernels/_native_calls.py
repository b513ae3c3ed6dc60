"""Calls into the compiled module: what a tensor looks like from there."""

import torch

__all__ = ["View", "require_cpu", "view"]

View = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]

# enum DType of csrc/kernels/kernels.hpp; everything else is 3, "other".
_DTYPE_CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


def view(tensor: torch.Tensor) -> View:
    """Describe a tensor to the compiled module, which keeps no reference: the caller must.

    Raises:
        ValueError: Its bytes in memory are not its values.
    """
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
