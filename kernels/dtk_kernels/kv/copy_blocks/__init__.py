"""Copy of blocks from one pool to another."""

import torch

from dtk_kernels._checks import (
    require_dtype,
    require_same_dtype,
    require_shapes,
    require_tensors,
    require_writable,
)
from dtk_kernels._operation import Operation

__all__ = ["copy_blocks_"]


def copy_blocks_(
    source_pool: torch.Tensor,
    source_ids: torch.Tensor,
    target_pool: torch.Tensor,
    target_ids: torch.Tensor,
    *,
    implementation: str | None = None,
) -> None:
    """Copy block `source_ids[i]` of one pool to block `target_ids[i]` of another, in place.

    All reads come before all writes, so the pools may be one and the same. Nothing is written if an id is
    found wrong. Pools on different devices are copied by torch.

    Args:
        source_pool: `[num_source_blocks, ...]`, any dtype and strides.
        source_ids: int32 `[num_blocks]` on the device of `source_pool`; ids may repeat.
        target_pool: `[num_target_blocks, ...]`, dtype and block shape of `source_pool`; an inference buffer.
        target_ids: int32 `[num_blocks]` on the device of `target_pool`; each id at most once. A pair with a
            -1 on either side is skipped.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Raises:
        ValueError: A shape, dtype or device does not fit, the target pool has not its own memory for each
            value (as after `expand`) or is a lazy view (as of `conj`), an id is not in its pool, or a target
            that would be written occurs twice. Ids are not checked where both pools are on one GPU, which
            must not wait: a pair with one outside its pool is skipped, and of blocks for the same target any
            may be written, in parts.
        NotImplementedError: The named implementation is missing here.
    """
    require_tensors(source_pool=source_pool, target_pool=target_pool)
    if implementation is None and source_pool.device != target_pool.device:
        implementation = "reference"
    OPERATION(implementation, source_pool, source_ids, target_pool, target_ids)


def check(
    source_pool: torch.Tensor, source_ids: torch.Tensor, target_pool: torch.Tensor, target_ids: torch.Tensor
) -> None:
    """Raise ValueError where the arguments' metadata do not fit."""
    require_tensors(source_pool=source_pool, target_pool=target_pool)
    require_shapes(source_ids=(source_ids, ("n",)), target_ids=(target_ids, ("n",)))
    if source_pool.dim() < 1 or target_pool.dim() < 1 or source_pool.shape[1:] != target_pool.shape[1:]:
        raise ValueError(
            "source_pool and target_pool must hold blocks of one shape, got pools of"
            f" {list(source_pool.shape)} and {list(target_pool.shape)}"
        )
    require_dtype((torch.int32,), source_ids=source_ids, target_ids=target_ids)
    require_same_dtype(source_pool=source_pool, target_pool=target_pool)
    require_writable(target_pool=target_pool)
    for side, pool, ids in (("source", source_pool, source_ids), ("target", target_pool, target_ids)):
        if ids.device != pool.device:
            raise ValueError(
                f"{side}_ids must be on the device of {side}_pool ({pool.device}), got {ids.device}"
            )


def _fake(
    source_pool: torch.Tensor, source_ids: torch.Tensor, target_pool: torch.Tensor, target_ids: torch.Tensor
) -> None:
    return None


OPERATION = Operation(
    "copy_blocks_",
    schema="(Tensor source_pool, Tensor source_ids, Tensor(a!) target_pool, Tensor target_ids) -> ()",
    check=check,
    fake=_fake,
)
