# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Block digests in Triton: one program reduces one block of one KV head."""

import torch
import triton.language as tl

from dtk_kernels.triton_support import KernelVariant, jit, launch, next_power_of_2

__all__ = ["aot_variants", "block_digest"]

_TILE_TOKENS = 16


@jit
def _block_digest_kernel(
    keys: tl.tensor,
    block_lengths: tl.tensor,
    key_min: tl.tensor,
    key_max: tl.tensor,
    num_heads: tl.tensor,
    block_size: tl.tensor,
    stride_block: tl.tensor,
    stride_head: tl.tensor,
    stride_token: tl.tensor,
    HEAD_DIM: tl.constexpr,
    TILE_S: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    block = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    length = tl.minimum(tl.load(block_lengths + block), block_size)
    channel = tl.arange(0, TILE_D)
    base = keys + block * stride_block + head * stride_head
    low = tl.full([TILE_S, TILE_D], float("inf"), tl.float32)
    high = tl.full([TILE_S, TILE_D], float("-inf"), tl.float32)
    # Reductions drop NaN, so it is carried beside them: a NaN key must show in its digest.
    broken = tl.zeros([TILE_S, TILE_D], tl.int32)
    for start in range(0, block_size, TILE_S):
        token = start + tl.arange(0, TILE_S)
        mask = (token < length)[:, None] & (channel < HEAD_DIM)[None, :]
        tile = tl.load(base + token[:, None] * stride_token + channel[None, :], mask=mask, other=0.0)
        tile = tile.to(tl.float32)
        is_nan = tile != tile
        broken = broken | is_nan.to(tl.int32)
        low = tl.minimum(low, tl.where(mask & (is_nan == 0), tile, float("inf")))
        high = tl.maximum(high, tl.where(mask & (is_nan == 0), tile, float("-inf")))
    poisoned = tl.max(broken, axis=0) > 0
    lowest = tl.where(poisoned, float("nan"), tl.min(low, axis=0))
    highest = tl.where(poisoned, float("nan"), tl.max(high, axis=0))
    out = (block * num_heads + head) * HEAD_DIM + channel
    tl.store(key_min + out, lowest.to(key_min.dtype.element_ty), mask=channel < HEAD_DIM)
    tl.store(key_max + out, highest.to(key_max.dtype.element_ty), mask=channel < HEAD_DIM)


def block_digest(keys: torch.Tensor, block_lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Channel-wise minimum and maximum of each block's first `block_lengths[n]` keys.

    Args:
        keys: `[N, Hkv, S, D]`, any strides with D contiguous.
        block_lengths: `[N]` int32; 0 gives (+inf, -inf).

    Returns:
        `(key_min, key_max)`, each `[N, Hkv, D]` of the keys' dtype. NaN keys give NaN digests.
    """
    num_blocks, num_heads, block_size, head_dim = keys.shape
    key_min = keys.new_empty(num_blocks, num_heads, head_dim)
    key_max = torch.empty_like(key_min)
    launch(
        _block_digest_kernel,
        (num_blocks, num_heads),
        keys,
        block_lengths.contiguous(),
        key_min,
        key_max,
        num_heads,
        block_size,
        *keys.stride()[:3],
        device=keys.device,
        TILE_S=_TILE_TOKENS,
        HEAD_DIM=head_dim,
        TILE_D=next_power_of_2(head_dim),
    )
    return key_min, key_max


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: each dtype, common head sizes and an odd one."""
    return [
        KernelVariant(
            name=f"block_digest[{dtype},d{head_dim}]",
            kernel=_block_digest_kernel,
            types={
                "keys": f"*{dtype}",
                "block_lengths": "*i32",
                "key_min": f"*{dtype}",
                "key_max": f"*{dtype}",
            },
            constants={"TILE_S": _TILE_TOKENS, "HEAD_DIM": head_dim, "TILE_D": next_power_of_2(head_dim)},
            aligned=frozenset({"stride_block", "stride_head", "stride_token"}),
        )
        for dtype, head_dim in (
            ("fp32", 128),
            ("fp16", 128),
            ("bf16", 64),
            ("bf16", 80),
            ("bf16", 128),
            ("bf16", 256),
        )
    ]
