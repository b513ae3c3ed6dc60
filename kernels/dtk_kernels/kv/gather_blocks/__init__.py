"""Gather of blocks from a pool into a dense tensor."""

import torch

from dtk_kernels._checks import require_dtype, require_same_device, require_shapes, require_tensors
from dtk_kernels._operation import Operation

__all__ = ["gather_blocks"]


def gather_blocks(
    pool: torch.Tensor, block_ids: torch.Tensor, *, implementation: str | None = None
) -> torch.Tensor:
    """Copy the named blocks out of a pool.

    Args:
        pool: `[num_pool_blocks, ...]`, any dtype and strides.
        block_ids: int32 `[num_blocks]`; ids may repeat, -1 gives a block of zeros.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        `[num_blocks, ...]`, contiguous, in the dtype of `pool`.

    Raises:
        ValueError: A shape, dtype or device does not fit, or an id is not in the pool (not checked on a GPU,
            which must not wait: its block is zeros).
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(implementation, pool, block_ids)
    return result


def _check(pool: torch.Tensor, block_ids: torch.Tensor) -> None:
    require_tensors(pool=pool)
    require_shapes(block_ids=(block_ids, ("n",)))
    if pool.dim() < 1:
        raise ValueError("pool must have shape [num_pool_blocks, ...], got []")
    require_dtype((torch.int32,), block_ids=block_ids)
    require_same_device(pool=pool, block_ids=block_ids)


def _fake(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
    return pool.new_empty((block_ids.shape[0], *pool.shape[1:]))


OPERATION = Operation(
    "gather_blocks",
    schema="(Tensor pool, Tensor block_ids) -> Tensor",
    check=_check,
    fake=_fake,
)
