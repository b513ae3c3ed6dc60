"""How attention over quantised K/V is cut into programs: as over plain K/V, with the tiles of its formats.

The figures come from what the compiler makes of the kernel (registers, shared memory) and from arithmetic;
no GPU has tuned them yet.
"""

from functools import lru_cache

from dtk_kernels.attention.sparse_decode_attention.launch_plan import Pipeline, Tiles, cut, padded_rows
from dtk_kernels.triton_support import next_power_of_2

__all__ = ["code_bytes", "tiles_for"]

_MIN_DOT = 16
_MAX_TOKENS = 128


def code_bytes(format: str, head_dim: int) -> int:
    """Return the bytes of a token's key: two codes of E2M1 share one."""
    return (head_dim + 1) // 2 if format == "e2m1" else head_dim


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

    `channels` of them is how many bytes of a token a tile holds, padded.
    """
    num_bytes = next_power_of_2(code_bytes(format, head_dim), at_least=_MIN_DOT)
    in_fp32 = num_scales > 1
    rows = padded_rows(group_size)
    if pipeline is None:
        channels = num_bytes * (2 if format == "e2m1" else 1)
        # 16 KiB of K as the kernel multiplies it: in 16 bits, or in fp32, where operands fill the registers.
        tokens = min(max((4096 if in_fp32 else 8192) // channels, _MIN_DOT), _MAX_TOKENS)
        pipeline = Pipeline(
            tokens=tokens,
            buffers=2,
            num_warps=8 if in_fp32 and rows * channels > 16 * 128 else 4,
        )
    return cut(
        pipeline, rows=rows, channels=num_bytes, in_fp32=in_fp32, block_size=block_size,
        group_size=group_size, row_bytes=num_bytes,
    )  # fmt: skip
