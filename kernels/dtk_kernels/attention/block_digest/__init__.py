"""Block digest: channel-wise minimum and maximum of a block's keys (Quest, arXiv 2406.10774, section 3.3)."""

import torch

from dtk_kernels._checks import (
    FLOAT_DTYPES,
    require_contiguous_last_dim,
    require_dtype,
    require_same_device,
    require_shapes,
)
from dtk_kernels._operation import Operation

__all__ = ["block_digest"]


def block_digest(
    keys: torch.Tensor, block_lengths: torch.Tensor, *, implementation: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Summarise each block by the smallest and largest value of every key channel.

    A NaN among the tokens that count makes its channel NaN in both results.

    Args:
        keys: `[num_blocks, num_kv_heads, block_size, head_dim]`, float32, float16 or bfloat16; any strides as
            long as head_dim is contiguous.
        block_lengths: int32 `[num_blocks]`: only that many first tokens of a block count. Length 0 gives
            (+inf, -inf), the digest of an empty block.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        `(key_min, key_max)`, each `[num_blocks, num_kv_heads, head_dim]` in the dtype of `keys`.

    Raises:
        ValueError: A shape, dtype, device or stride does not fit, or a length is not in 0..block_size (not
            checked on a GPU, which must not wait: it counts as the nearest length that is).
        NotImplementedError: The named implementation is missing here.
    """
    result: tuple[torch.Tensor, torch.Tensor] = OPERATION(implementation, keys, block_lengths)
    return result


def _check(keys: torch.Tensor, block_lengths: torch.Tensor) -> None:
    require_shapes(keys=(keys, ("N", "Hkv", "S", "D")), block_lengths=(block_lengths, ("N",)))
    require_dtype(FLOAT_DTYPES, keys=keys)
    require_dtype((torch.int32,), block_lengths=block_lengths)
    require_same_device(keys=keys, block_lengths=block_lengths)
    require_contiguous_last_dim(keys=keys)


def _fake(keys: torch.Tensor, block_lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (keys.shape[0], keys.shape[1], keys.shape[3])
    return keys.new_empty(shape), keys.new_empty(shape)


OPERATION = Operation(
    "block_digest",
    schema="(Tensor keys, Tensor block_lengths) -> (Tensor, Tensor)",
    check=_check,
    fake=_fake,
)
