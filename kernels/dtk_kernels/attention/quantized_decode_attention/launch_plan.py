"""How attention over quantised K/V is cut into programs: as over plain K/V, with the tiles of its formats.

The figures come from what the compiler makes of the kernel (registers, shared memory) and from arithmetic;
no GPU has tuned them yet.
"""

from functools import lru_cache

from dtk_kernels.attention.sparse_decode_attention.launch_plan import Pipeline, Tiles, cut, padded_rows
from dtk_kernels.triton_support import next_power_of_2

__all__ = ["code_bytes", "in_parts", "tiles_for"]

_MIN_DOT = 16
_MAX_TOKENS = 128
_MAX_PARTS = 8


def code_bytes(format: str, head_dim: int) -> int:
    """Return the bytes of a token's key: two codes of E2M1 share one."""
    return (head_dim + 1) // 2 if format == "e2m1" else head_dim


def in_parts(format: str, head_dim: int, num_scales: int) -> bool:
    """Return whether the channels of each scale are multiplied on their own.

    They must be whole bytes, and enough of them not to pad: 32 channels of E2M1, 16 of the other formats.
    """
    num_bytes = code_bytes(format, head_dim)
    whole = num_bytes % num_scales == 0 and (format != "e2m1" or head_dim // num_scales % 2 == 0)
    return num_scales == 1 or (whole and num_scales <= _MAX_PARTS and num_bytes // num_scales >= _MIN_DOT)


@lru_cache(maxsize=256)
def tiles_for(
    format: str,
    *,
    num_scales: int,
    head_dim: int,
    block_size: int,
    group_size: int,
    pipeline: Pipeline | None = None,
) -> Tiles:
    """Return the tiles for a format, scales a token, head size, tokens a block and query heads a KV head.

    `channels` of them is how many bytes a part of a token has, padded.
    """
    in_fp32 = not in_parts(format, head_dim, num_scales)
    parts = 1 if in_fp32 else num_scales
    part_bytes = next_power_of_2(code_bytes(format, head_dim) // parts, at_least=_MIN_DOT)
    num_bytes = parts * part_bytes
    rows = padded_rows(group_size)
    if pipeline is None:
        packed = format == "e2m1"
        channels = next_power_of_2(num_bytes * (2 if packed else 1))
        # 16 KiB of K as the kernel multiplies it in 16 bits; half of that where operands fill the registers,
        # as they do in fp32 and with totals for odd and even channels.
        wanted = (4096 if in_fp32 or packed else 8192) // channels
        pipeline = Pipeline(
            tokens=min(max(wanted, _MIN_DOT), _MAX_TOKENS),
            # With half the bytes a token, more tokens are on their way; scales of all channels take the room.
            buffers=1 if in_fp32 else 3 if packed else 2,
            num_warps=8 if in_fp32 and rows * channels > 16 * 128 else 4,
        )
    return cut(
        pipeline, rows=rows, channels=part_bytes, in_fp32=in_fp32, block_size=block_size,
        group_size=group_size, row_bytes=num_bytes,
    )  # fmt: skip
