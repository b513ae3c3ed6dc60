"""What is timed: shapes of the ScoutAttention paper (arXiv 2603.27138, section 5) and the bytes they move.

Free of torch, so that what a run would do can be listed and counted anywhere.
"""

from dataclasses import dataclass

__all__ = ["CODE_BYTES", "ITEM_BYTES", "NUM_SELECTED", "Case", "cases", "tuned_cases"]

ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
CODE_BYTES = {"int8": 1.0, "e4m3": 1.0, "e2m1": 0.5}
"""Bytes of a channel of quantised keys and values, without their scales."""
_SCALE_BYTES = 4  # one fp32 scale a token and head
NUM_SELECTED = 64
"""Blocks selected for a row: 2048 tokens in blocks of 32."""

_CONTEXT_TOKENS = 65536


@dataclass(frozen=True)
class Case:
    """One operation at one shape.

    Attributes:
        operation: name of the public function.
        dtype: `bf16`, `fp16` or `fp32`, of query, keys and values.
        batch: sequences.
        tokens: a sequence's selected tokens (attention, gather) or its whole context (digest, score, select).
        block_size: tokens a block.
        group_size: query heads that share a KV head.
        num_kv_heads: KV heads.
        head_dim: channels of a head.
        kv_format: `int8`, `e4m3` or `e2m1` where keys and values are quantised, with one scale a token;
            `e4m3`, `mxfp4` or `nvfp4` of `fake_quantize`, for which a token is a row of all KV heads'
            channels, in blocks of `block_size`.
    """

    operation: str
    dtype: str
    batch: int
    tokens: int = 2048
    block_size: int = 32
    group_size: int = 4
    num_kv_heads: int = 8
    head_dim: int = 128
    kv_format: str | None = None

    @property
    def name(self) -> str:
        """Operation and shape, as in `sparse_decode_attention[bf16,b16,t2048,s32,g4]`."""
        shape = f"b{self.batch},t{self.tokens},s{self.block_size},g{self.group_size}"
        dtypes = self.dtype if self.kv_format is None else f"{self.dtype},{self.kv_format}"
        return f"{self.operation}[{dtypes},{shape}]"

    @property
    def num_blocks(self) -> int:
        """Blocks that hold a sequence's tokens."""
        return -(-self.tokens // self.block_size)

    @property
    def moved_bytes(self) -> int:
        """Bytes that must be read or written at least once: keys and values, or what stands for them.

        Queries, tables and results are left out where keys and values dwarf them, so that figures for
        attention are KV bytes a second.
        """
        token_bytes = self.num_kv_heads * self.head_dim * ITEM_BYTES[self.dtype]
        digest_bytes = 2 * self.batch * self.num_blocks * token_bytes
        if self.operation == "sparse_decode_attention":
            return 2 * self.batch * self.tokens * token_bytes
        if self.operation == "fake_quantize":  # in and out; the second look of nvfp4 is a cost, not traffic
            return 2 * self.batch * self.tokens * token_bytes
        if self.kv_format is not None:
            row_bytes = int(self.head_dim * CODE_BYTES[self.kv_format]) + _SCALE_BYTES
            return 2 * self.batch * self.tokens * self.num_kv_heads * row_bytes
        if self.operation == "block_digest":
            return self.batch * self.tokens * token_bytes + digest_bytes
        if self.operation == "block_score":
            return digest_bytes
        if self.operation == "select_blocks":
            return 4 * self.batch * self.num_blocks
        if self.operation == "gather_blocks":
            return 2 * self.batch * self.num_blocks * self.block_size * token_bytes
        if self.operation == "merge_partials":  # two partial results in, one out
            return 4 * 3 * self.batch * self.num_kv_heads * self.group_size * (self.head_dim + 1)
        raise ValueError(f"operation must be one that is timed, got {self.operation!r}")


def cases(*, quick: bool = False) -> list[Case]:
    """Return what a run times, the most telling first, for a run may end early.

    Args:
        quick: a handful, to see that everything works.
    """
    attention = "sparse_decode_attention"
    telling = [
        Case(attention, "bf16", 16),
        Case(attention, "bf16", 1),
        Case(attention, "bf16", 40, group_size=8),
        Case("block_score", "bf16", 1, _CONTEXT_TOKENS),
        Case("select_blocks", "fp32", 1, _CONTEXT_TOKENS),
    ]
    if quick:
        return telling
    shapes = [
        Case(attention, "bf16", batch, group_size=group_size)
        for batch in (1, 4, 16, 40)
        for group_size in (1, 4, 8)
    ]
    shapes += [Case(attention, "bf16", 16, block_size=block_size) for block_size in (16, 64)]
    shapes += [Case(attention, dtype, 16) for dtype in ("fp16", "fp32")]
    context = [
        Case(operation, dtype, batch, _CONTEXT_TOKENS)
        for operation, dtype in (("block_score", "bf16"), ("select_blocks", "fp32"), ("block_digest", "bf16"))
        for batch in (1, 16)
    ]
    quantized = [
        Case("quantized_decode_attention", "bf16", batch, kv_format=kv_format)
        for batch in (16, 1, 40)
        for kv_format in CODE_BYTES
    ]
    fake = [
        Case("fake_quantize", dtype, 8, block_size=block_size, num_kv_heads=32, kv_format=kv_format)
        for dtype in ("bf16", "fp32")
        for kv_format, block_size in (("e4m3", 128), ("mxfp4", 32), ("nvfp4", 16))
    ]
    moves = [Case("gather_blocks", "bf16", 16), Case("merge_partials", "fp32", 16)]
    return list(dict.fromkeys([*telling, *shapes, *quantized, *context, *moves, *fake]))


def tuned_cases() -> list[Case]:
    """Return what launch plans are compared on: few, some and many sequences."""
    return [Case("sparse_decode_attention", "bf16", batch) for batch in (16, 1, 40)]
