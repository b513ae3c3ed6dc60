"""Calls into the compiled module: what a tensor looks like from there."""

import torch

__all__ = ["View", "memory_overlaps", "require_cpu", "view"]

View = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]

# enum DType of csrc/kernels/kernels.hpp; everything else is 3, "other".
_DTYPE_CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


def view(tensor: torch.Tensor) -> View:
    """Describe a tensor to the compiled module, which keeps no reference: the caller must."""
    return (
        tensor.data_ptr(),
        _DTYPE_CODES.get(tensor.dtype, 3),
        tensor.element_size(),
        tuple(tensor.shape),
        tensor.stride(),
    )


def require_cpu(**tensors: torch.Tensor | None) -> None:
    """Raise ValueError unless every tensor is in host memory."""
    for argument, tensor in tensors.items():
        if tensor is not None and tensor.device.type != "cpu":
            raise ValueError(
                f"{argument} must be a CPU tensor for native kernels, got one on {tensor.device}"
            )


def memory_overlaps(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether the address ranges of two tensors meet (interleaved views count as meeting)."""
    return _first_byte(a) < _end_byte(b) and _first_byte(b) < _end_byte(a)


def _first_byte(tensor: torch.Tensor) -> int:
    return tensor.data_ptr()


def _end_byte(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()
