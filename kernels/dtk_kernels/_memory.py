"""How tensors lie in memory: whether two share it, whether their bytes are their values."""

import torch

__all__ = ["has_own_memory_for_each_value", "is_lazy", "memory_overlaps", "resolved"]


def is_lazy(tensor: torch.Tensor) -> bool:
    """Return whether torch negates or conjugates when it reads: the bytes are not the values."""
    return tensor.is_neg() or tensor.is_conj()


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, or a copy where its bytes in memory are not its values."""
    return tensor.resolve_neg().resolve_conj() if is_lazy(tensor) else tensor


def has_own_memory_for_each_value(tensor: torch.Tensor) -> bool:
    """Return whether no two values share memory, as they do in an expanded tensor.

    By metadata only. Every layout that slicing and permuting a dense tensor can give is recognised; layouts
    in which strides interleave without meeting (only `as_strided` makes them) count as sharing.
    """
    if tensor.numel() == 0:
        return True
    reach = 0  # of the dims so far: the distance between their first and last value
    dims = [(stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
    for stride, size in sorted(dims, key=lambda dim: dim[0]):
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


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
