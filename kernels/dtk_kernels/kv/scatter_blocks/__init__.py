"""Scatter of blocks from a dense tensor into a pool."""

import torch

from dtk_kernels._checks import (
    require_dtype,
    require_same_device,
    require_same_dtype,
    require_shapes,
    require_tensors,
    require_writable,
)
from dtk_kernels._operation import Operation

__all__ = ["scatter_blocks_"]


def scatter_blocks_(
    pool: torch.Tensor,
    block_ids: torch.Tensor,
    blocks: torch.Tensor,
    *,
    implementation: str | None = None,
) -> None:
    """Write blocks into a pool, in place. Nothing is written if an id is found wrong.

    Args:
        pool: `[num_pool_blocks, ...]`, any dtype and strides; an inference buffer (no gradients).
        block_ids: int32 `[num_blocks]`, each id at most once; -1 leaves that block out.
        blocks: `[num_blocks, ...]`, dtype of `pool`. It may share memory with the pool: then all is read
            before any is written, at the price of a copy.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Raises:
        ValueError: A shape, dtype or device does not fit, the pool has not its own memory for each value (as
            after `expand`) or is a lazy view (as of `conj`), or an id is not in the pool or occurs twice. Ids
            are not checked on a GPU, which must not wait: one outside the pool is left out, and of blocks
            with the same id any may be written, in parts.
        NotImplementedError: The named implementation is missing here.
    """
    OPERATION(implementation, pool, block_ids, blocks)


def _check(pool: torch.Tensor, block_ids: torch.Tensor, blocks: torch.Tensor) -> None:
    require_tensors(pool=pool, blocks=blocks)
    require_shapes(block_ids=(block_ids, ("n",)))
    if pool.dim() < 1 or blocks.shape != (block_ids.shape[0], *pool.shape[1:]):
        raise ValueError(
            f"blocks must have one block of the pool's shape for each of the {block_ids.shape[0]} ids, got"
            f" {list(blocks.shape)} for a pool of {list(pool.shape)}"
        )
    require_dtype((torch.int32,), block_ids=block_ids)
    require_same_dtype(pool=pool, blocks=blocks)
    require_writable(pool=pool)
    require_same_device(pool=pool, block_ids=block_ids, blocks=blocks)


def _fake(pool: torch.Tensor, block_ids: torch.Tensor, blocks: torch.Tensor) -> None:
    return None


OPERATION = Operation(
    "scatter_blocks_",
    schema="(Tensor(a!) pool, Tensor block_ids, Tensor blocks) -> ()",
    check=_check,
    fake=_fake,
)
