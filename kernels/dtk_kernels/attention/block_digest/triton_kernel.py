# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Block digests in Triton: one program reduces one block of one KV head, read once.

A tile of up to 4096 values takes in a whole block of 32 keys of 128 channels: all its loads are on their
way at once, in pieces of 16 bytes, and nothing is carried from tile to tile.
"""

import torch
import triton.language as tl

from dtk_kernels.triton_support import (
    KernelVariant,
    jit,
    launch,
    next_power_of_2,
    stride_unit,
    triton_type,
)

__all__ = ["aot_variants", "block_digest"]

_TILE_ELEMENTS = 4096
_BYTES_A_WARP = 4096  # eight loads of 16 bytes a thread


@jit(unspecialized=("num_heads", "block_size", "stride_block", "stride_head", "stride_token"))
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
    STRIDE_UNIT: tl.constexpr,
    ONE_TILE: tl.constexpr,
    TILE_S: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    block = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    length = tl.minimum(tl.load(block_lengths + block), block_size)
    channel = tl.arange(0, TILE_D)
    in_dim = (channel < HEAD_DIM)[None, :]
    base = keys + (block * stride_block + head * stride_head) * STRIDE_UNIT
    low = tl.full([TILE_D], float("inf"), tl.float32)
    high = tl.full([TILE_D], float("-inf"), tl.float32)
    # Reductions drop NaN, so it is carried beside them: a NaN key must show in its digest.
    broken = tl.zeros([TILE_D], tl.int32)
    for start in range(0, TILE_S if ONE_TILE else block_size, TILE_S):
        token = start + tl.arange(0, TILE_S)
        mask = (token < length)[:, None] & in_dim
        at = (token.to(tl.int64) * stride_token * STRIDE_UNIT)[:, None] + channel[None, :]
        tile = tl.load(base + at, mask=mask, other=0.0).to(tl.float32)
        is_nan = tile != tile
        counts = mask & (is_nan == 0)
        broken = broken | tl.max(is_nan.to(tl.int32), axis=0)
        low = tl.minimum(low, tl.min(tl.where(counts, tile, float("inf")), axis=0))
        high = tl.maximum(high, tl.max(tl.where(counts, tile, float("-inf")), axis=0))
    lowest = tl.where(broken > 0, float("nan"), low)
    highest = tl.where(broken > 0, float("nan"), high)
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
    tile_s, tile_d, num_warps = _tile(block_size, head_dim, keys.element_size())
    unit = stride_unit(keys.element_size(), *keys.stride()[:3])
    launch(
        _block_digest_kernel,
        (num_blocks, num_heads),
        *(keys, block_lengths.contiguous(), key_min, key_max),
        *(num_heads, block_size),
        *(stride // unit for stride in keys.stride()[:3]),
        device=keys.device,
        HEAD_DIM=head_dim,
        STRIDE_UNIT=unit,
        ONE_TILE=block_size <= tile_s,
        TILE_S=tile_s,
        TILE_D=tile_d,
        num_warps=num_warps,
    )
    return key_min, key_max


def _tile(block_size: int, head_dim: int, itemsize: int) -> tuple[int, int, int]:
    """Tokens and channels of a tile, and the warps that load it."""
    tile_d = next_power_of_2(head_dim)
    tile_s = min(next_power_of_2(block_size), max(_TILE_ELEMENTS // tile_d, 1))
    return tile_s, tile_d, min(max(tile_s * tile_d * itemsize // _BYTES_A_WARP, 1), 4)


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: each dtype, common head sizes and an odd one."""
    return [
        _variant(dtype, block_size=block_size, head_dim=head_dim)
        for dtype, block_size, head_dim in (
            (torch.float32, 32, 128),
            (torch.float16, 32, 128),
            (torch.bfloat16, 64, 64),
            (torch.bfloat16, 32, 80),
            (torch.bfloat16, 32, 128),
            (torch.bfloat16, 64, 256),
        )
    ]


def _variant(dtype: torch.dtype, *, block_size: int, head_dim: int) -> KernelVariant:
    tile_s, tile_d, num_warps = _tile(block_size, head_dim, dtype.itemsize)
    pointer = f"*{triton_type(dtype)}"
    return KernelVariant(
        name=f"block_digest[{triton_type(dtype)},d{head_dim},s{block_size}]",
        kernel=_block_digest_kernel,
        types={"keys": pointer, "block_lengths": "*i32", "key_min": pointer, "key_max": pointer},
        constants={
            "HEAD_DIM": head_dim,
            "STRIDE_UNIT": stride_unit(dtype.itemsize, head_dim),
            "ONE_TILE": block_size <= tile_s,
            "TILE_S": tile_s,
            "TILE_D": tile_d,
        },
        num_warps=num_warps,
    )
