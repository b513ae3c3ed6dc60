"""The smallest kernels that tell whether Triton's interpreter works with the installed numpy."""

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl

from dtk_kernels.triton_support import jit


@jit
def _canary_kernel(source: tl.tensor, target: tl.tensor, count: tl.tensor, TILE: tl.constexpr) -> None:  # noqa: N803
    total = tl.zeros([TILE], tl.float32)
    # A loop bound that is an argument needs `__index__` of an interpreted scalar, which numpy 2.4 broke once.
    for step in range(count):
        total += tl.load(source + step * TILE + tl.arange(0, TILE)).to(tl.float32)
    tl.store(target + tl.arange(0, TILE), total)


@jit
def _add_kernel(left: tl.tensor, right: tl.tensor, target: tl.tensor, TILE: tl.constexpr) -> None:  # noqa: N803
    at = tl.arange(0, TILE)
    tl.store(target + at, tl.load(left + at) + tl.load(right + at))


def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Add in the tensors' own dtype, as none of our kernels does."""
    target = torch.empty_like(left)
    _add_kernel[(1,)](left, right, target, TILE=left.numel())
    return target


@lru_cache(maxsize=1)
def interpreter_problem() -> str | None:
    """Return what is wrong with the interpreter, naming the versions, or None."""
    source = torch.arange(32, dtype=torch.float16)
    target = torch.full((16,), float("nan"))
    versions = f"triton {triton.__version__} with numpy {np.__version__}"
    try:
        _canary_kernel[(1,)](source, target, 2, TILE=16)
    except Exception as error:  # noqa: BLE001 - any failure is the finding
        return f"Triton's interpreter fails ({versions}): {error}"
    expected = source.float().reshape(2, 16).sum(dim=0)
    return None if torch.equal(target, expected) else f"Triton's interpreter computes wrongly ({versions})"
