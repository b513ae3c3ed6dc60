"""Inputs for the kernel tests: pools in several memory layouts, full of NaN where nothing may be read."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from hypothesis import strategies as st

# Interpreted kernels know no bfloat16; compiled ones are tested with it in test_gpu.py.
DTYPES = (torch.float32, torch.float16)
LAYOUTS = ("dense", "token-major", "padded")

dtypes = st.sampled_from(DTYPES)
layouts = st.sampled_from(LAYOUTS)
head_dims = st.sampled_from((1, 8, 16, 24, 40, 64, 96, 128, 256))
block_sizes = st.sampled_from((1, 3, 7, 16, 20, 32))
seeds = st.integers(0, 2**31 - 1)


def generator(seed: int) -> torch.Generator:
    """Return a seeded source of random numbers."""
    return torch.Generator().manual_seed(seed)


def in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a tensor of the same values in another layout; the last dim stays contiguous.

    "token-major" swaps dims 1 and 2 in memory where there are two, "padded" leaves gaps of NaN or the largest
    integer after each row.
    """
    if layout == "token-major" and tensor.dim() == 4:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "padded":
        gap = float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).max
        wide = tensor.new_full((*tensor.shape[:-1], tensor.shape[-1] + 3), gap)
        wide[..., : tensor.shape[-1]] = tensor
        return wide[..., : tensor.shape[-1]]
    return tensor.contiguous()


def randn(shape: Sequence[int], source: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Return normal random numbers on the CPU, rounded to `dtype`."""
    return torch.randn(*shape, generator=source).to(dtype)


def randint(low: int, high: int, shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    """Return random int32 numbers in low..high, both included."""
    return torch.randint(low, high + 1, tuple(shape), generator=source, dtype=torch.int32)


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill what `torch.empty` returns with NaN or the largest integer, so that unwritten output shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
