"""Checks of what callers pass in: one clear line a mistake, raised before any pointer is taken.

All of them look at metadata only (shape, dtype, device, strides), so they also run on fake tensors. What a
table holds is checked by the implementations, which read it anyway.
"""

import numbers
from collections.abc import Collection
from typing import Any

import torch

from dtk_kernels._memory import has_own_memory_for_each_value, is_lazy

__all__ = [
    "FLOAT_DTYPES",
    "require_contiguous_last_dim",
    "require_count",
    "require_dtype",
    "require_finite",
    "require_flag",
    "require_grouped_heads",
    "require_one_of",
    "require_same_device",
    "require_same_dtype",
    "require_shapes",
    "require_tensors",
    "require_writable",
]

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Any, because type checkers would not believe that such numbers pass for float and int.
_REAL: Any = (numbers.Real, torch.SymFloat, torch.SymInt)
_INTEGRAL: Any = (numbers.Integral, torch.SymInt)


def require_shapes(**tensors: tuple[torch.Tensor, tuple[str, ...]]) -> dict[str, int]:
    """Match tensors to shapes written with size names; the same name must mean the same size everywhere.

    Args:
        **tensors: The tensor and its size names, as in `keys=(keys, ("N", "Hkv", "S", "D"))`.

    Returns:
        The size of each name.

    Raises:
        TypeError: An argument is no tensor.
        ValueError: A tensor is sparse or nested, or a shape does not fit; the text names the argument, its
            shape and what was wanted.
    """
    sizes: dict[str, int] = {}
    shapes: dict[tuple[str, ...], torch.Size] = {}
    # This runs on every call and a question to torch costs 0.1 us: each is asked once, and a shape like one
    # before passes at once.
    for argument, (tensor, names) in tensors.items():
        if not _is_dense(tensor):
            require_tensors(**{argument: tensor})
        shape = tensor.shape
        if shapes.get(names) == shape:
            continue
        shapes[names] = shape
        if len(shape) != len(names):
            raise ValueError(f"{argument} must have shape [{', '.join(names)}], got {list(shape)}")
        for name, size in zip(names, shape, strict=True):
            if sizes.setdefault(name, size) != size:
                origin = next(other for other, (_, others) in tensors.items() if name in others)
                raise ValueError(
                    f"{argument} has shape {list(shape)}: dim {names.index(name)} ({name}) must be"
                    f" {sizes[name]} as in {origin}, got {size}"
                )
            if size == 0 and name in ("D", "S"):
                raise ValueError(f"{argument} must have no empty dim {name}, got shape {list(shape)}")
    return sizes


def require_tensors(**tensors: torch.Tensor) -> None:
    """Raise TypeError unless every argument is a tensor, ValueError unless a dense (strided) one."""
    for argument, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{argument} must be a tensor, got {type(tensor).__name__}")
        if not _is_dense(tensor):
            kind = "nested tensor" if tensor.is_nested else "tensor"
            raise ValueError(
                f"{argument} must be a dense tensor, got a {kind} of layout {_name(tensor.layout)}"
            )


def require_writable(**tensors: torch.Tensor) -> None:
    """Raise ValueError unless values can be written in place: each has memory of its own that holds it."""
    for argument, tensor in tensors.items():
        if is_lazy(tensor):
            raise ValueError(
                f"{argument} is written in place and must be no lazily negated or conjugated view; pass the"
                " tensor that it is a view of"
            )
        if not has_own_memory_for_each_value(tensor):
            raise ValueError(
                f"{argument} is written in place and must have memory of its own for each value, got shape"
                f" {list(tensor.shape)} with strides {tensor.stride()}"
            )


def require_dtype(allowed: tuple[torch.dtype, ...], **tensors: torch.Tensor) -> None:
    """Raise ValueError unless every tensor has one of the allowed dtypes."""
    for argument, tensor in tensors.items():
        if tensor.dtype not in allowed:
            names = " or ".join(_name(dtype) for dtype in allowed)
            raise ValueError(f"{argument} must be {names}, got {_name(tensor.dtype)}")


def require_same_dtype(**tensors: torch.Tensor) -> None:
    """Raise ValueError unless all tensors have the dtype of the first."""
    first = next(iter(tensors))
    dtype = tensors[first].dtype
    for argument, tensor in tensors.items():
        if tensor.dtype != dtype:
            raise ValueError(
                f"{argument} must have the dtype of {first} ({_name(dtype)}), got {_name(tensor.dtype)}"
            )


def require_same_device(**tensors: torch.Tensor) -> None:
    """Raise ValueError unless all tensors are on the device of the first."""
    first = next(iter(tensors))
    device = tensors[first].device
    for argument, tensor in tensors.items():
        if tensor.device != device:
            raise ValueError(f"{argument} must be on the device of {first} ({device}), got {tensor.device}")


def require_contiguous_last_dim(**tensors: torch.Tensor) -> None:
    """Raise ValueError unless neighbours along the last dim are neighbours in memory."""
    for argument, tensor in tensors.items():
        if tensor.stride(-1) != 1 and tensor.shape[-1] > 1:
            raise ValueError(f"{argument} must be contiguous in its last dim, got strides {tensor.stride()}")


def require_finite(**factors: Any) -> None:
    """Raise TypeError unless every factor is a number or None, ValueError unless float32 can hold it."""
    for argument, factor in factors.items():
        if factor is None:
            continue
        if not isinstance(factor, _REAL):
            raise TypeError(f"{argument} must be a number or None, got {type(factor).__name__}")
        if not abs(factor) <= torch.finfo(torch.float32).max:  # in this form NaN fails, too
            raise ValueError(f"{argument} must be a finite float32 number, got {factor}")


def require_count(argument: str, count: Any, *, at_least: int = 0) -> None:
    """Raise TypeError unless a count is an integer, ValueError if it is too small."""
    if not isinstance(count, _INTEGRAL) or isinstance(count, bool):
        raise TypeError(f"{argument} must be an integer, got {count!r}")
    if count < at_least:
        raise ValueError(f"{argument} must be at least {at_least}, got {count}")


def require_flag(**flags: Any) -> None:
    """Raise TypeError unless every argument is True or False."""
    for argument, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{argument} must be True or False, got {flag!r}")


def require_one_of(allowed: Collection[str], **names: Any) -> None:
    """Raise ValueError unless every argument is one of the allowed names."""
    for argument, name in names.items():
        if not isinstance(name, str) or name not in allowed:
            raise ValueError(f"{argument} must be one of {', '.join(allowed)}, got {name!r}")


def require_grouped_heads(num_query_heads: int, num_kv_heads: int) -> None:
    """Raise ValueError unless the query heads can be shared out evenly among the KV heads."""
    if num_kv_heads < 1 or num_query_heads < 1 or num_query_heads % num_kv_heads:
        raise ValueError(
            f"query has {num_query_heads} heads, which is no positive multiple of the {num_kv_heads} KV heads"
        )


def _is_dense(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and not tensor.is_nested


def _name(dtype: torch.dtype | torch.layout) -> str:
    return str(dtype).removeprefix("torch.")
