"""Cases of digests, scores, selection and merges.

Sizes are those of decoding from a context of 64k tokens (blocks of 32, 8 KV heads, head size 128, batch 4),
and of one decode step at batch 1, where the cost of a call rules. Kernels run on the calling thread, as one
worker runs them.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from dtk_kernels.attention import block_digest, block_score, merge_partials, select_blocks
from dtk_kernels.attention.block_score import HeadReduction
from dtk_kernels.benchmark.case import DTYPES, Case

__all__ = ["attention_cases"]

_KV_HEADS, _BLOCK_SIZE, _HEAD_DIM, _CONTEXT_BLOCKS = 8, 32, 128, 2048

_REDUCTIONS: list[tuple[HeadReduction, int]] = [
    ("layer", 4), ("group_sum", 4), ("group_max", 1), ("group_max", 4), ("group_max", 16)
]  # fmt: skip
# (batch, groups, columns, selected)
_SMALL_SELECTIONS = [(1, 1, 64, 16), (1, 1, 2048, 64)]
_SELECTIONS = [
    (4, 8, 2048, 64), (4, 8, 2048, 512), (4, 8, 2048, 2048), (4, 8, 65536, 64), (4, 8, 65536, 8192)
]  # fmt: skip


def attention_cases(*, small: bool) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield operation and maker of each case: data are made when a case is, and freed with it."""
    for dtype in DTYPES:
        yield "block_digest", partial(_digest, dtype, 1 if small else _CONTEXT_BLOCKS)
    for reduction, group_size in _REDUCTIONS:
        for dtype in DTYPES:
            yield "block_score", partial(_score, dtype, reduction, group_size, small)
    for sizes in _SMALL_SELECTIONS if small else _SELECTIONS:
        yield "select_blocks", partial(_select, *sizes)
    for num_partials in (2, 8):
        yield "merge_partials", partial(_merge, num_partials, 1 if small else 64)


def _random(*shape: int, dtype: str = "fp32") -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator).to(DTYPES[dtype])


def _digest(dtype: str, num_blocks: int) -> Case:
    keys = _random(num_blocks, _KV_HEADS, _BLOCK_SIZE, _HEAD_DIM, dtype=dtype)
    lengths = torch.full((num_blocks,), _BLOCK_SIZE, dtype=torch.int32)
    return Case(
        "block_digest",
        f"{num_blocks} blocks",
        dtype,
        read_bytes=keys.nbytes,
        written_bytes=2 * keys.nbytes // _BLOCK_SIZE,
        ours=lambda: block_digest(keys, lengths),
        peers={
            "amin and amax": lambda: (keys.amin(dim=2), keys.amax(dim=2)),
            "aminmax": lambda: tuple(keys.aminmax(dim=2)),
        },
        reference=lambda: block_digest(keys[::16], lengths[::16], implementation="reference"),
        sample=lambda digests: tuple(digest[::16] for digest in digests),
    )


def _score(dtype: str, reduction: HeadReduction, group_size: int, small: bool) -> Case:
    batch, num_blocks = (1, 64) if small else (4, _CONTEXT_BLOCKS)
    query = _random(batch, _KV_HEADS * group_size, _HEAD_DIM)
    digests = _random(batch * num_blocks, 2, _KV_HEADS, _HEAD_DIM).sort(dim=1).values.to(DTYPES[dtype])
    key_min, key_max = digests[:, 0].contiguous(), digests[:, 1].contiguous()
    table = torch.arange(batch * num_blocks, dtype=torch.int32).view(batch, num_blocks)
    peer = _ClampedQueries(query, key_min, key_max, reduction)
    return Case(
        "block_score",
        f"{batch} x {num_blocks} blocks, {reduction}, group {group_size}",
        dtype,
        read_bytes=2 * key_min.nbytes,
        written_bytes=0,
        ours=lambda: block_score(query, key_min, key_max, table, head_reduction=reduction),
        peers={"einsum of clamped queries": peer.einsum, "matmul of clamped queries": peer.matmul},
        reference=lambda: block_score(
            query, key_min, key_max, table[:, ::16], head_reduction=reduction, implementation="reference"
        ),
        sample=lambda scores: scores[..., ::16],
        peer_tolerance=1e-5 if dtype == "fp32" else 0.03,
    )


class _ClampedQueries:
    """Scores by products: sum_d max(q * min, q * max) = max(q, 0) . max + min(q, 0) . min."""

    def __init__(self, query: Tensor, key_min: Tensor, key_max: Tensor, reduction: HeadReduction) -> None:
        batch = query.shape[0]
        shape = (batch, key_min.shape[0] // batch, *key_min.shape[1:])
        self.lows, self.highs = key_min.view(shape), key_max.view(shape)
        self.query = query.to(key_min.dtype).view(batch, shape[2], -1, shape[3])
        self.reduction = reduction

    def parts(self) -> tuple[Tensor, Tensor]:
        """[batch, KV heads, rows, head size]; heads whose scores are summed are summed before."""
        positive, negative = self.query.clamp(min=0), self.query.clamp(max=0)
        if self.reduction == "group_max":
            return positive, negative
        return positive.sum(dim=2, keepdim=True), negative.sum(dim=2, keepdim=True)

    def einsum(self) -> Tensor:
        positive, negative = self.parts()
        bounds = torch.einsum("bhgd,bnhd->bhgn", positive, self.highs)
        bounds = bounds + torch.einsum("bhgd,bnhd->bhgn", negative, self.lows)
        if self.reduction == "layer":
            return bounds.float().sum(dim=(1, 2))[:, None]
        return bounds.amax(dim=2).float()

    def matmul(self) -> Tensor:
        """A sequence at a time, so that nothing has to be copied into another order."""
        rows = zip(self.highs, self.lows, *self.parts(), strict=True)
        if self.reduction == "layer":
            scores = [
                high.flatten(1) @ positive.flatten() + low.flatten(1) @ negative.flatten()
                for high, low, positive, negative in rows
            ]
            return torch.stack(scores).float()[:, None]
        bounds = [
            positive @ high.permute(1, 2, 0) + negative @ low.permute(1, 2, 0)
            for high, low, positive, negative in rows
        ]
        return torch.stack(bounds).amax(dim=2).float()


def _select(batch: int, num_groups: int, num_blocks: int, num_selected: int) -> Case:
    scores = _random(batch, num_groups, num_blocks)
    forced = torch.zeros(batch, num_blocks, dtype=torch.bool)
    forced[:, [0, num_blocks - 1]] = True

    def topk() -> Tensor:
        ranked = scores.masked_fill(forced[:, None], float("inf"))
        return ranked.topk(num_selected, sorted=False).indices.sort().values.int()

    return Case(
        "select_blocks",
        f"{num_selected} of {num_blocks}, {batch * num_groups} rows",
        "fp32",
        read_bytes=scores.nbytes,
        written_bytes=0,
        ours=lambda: select_blocks(scores, num_selected, forced=forced),
        peers={"topk and sort": topk},
        reference=lambda: select_blocks(scores, num_selected, forced=forced, implementation="reference"),
    )


def _merge(num_partials: int, batch: int) -> Case:
    outputs, lses = _random(num_partials, batch, 32, _HEAD_DIM), _random(num_partials, batch, 32) * 5

    def weighted_sum() -> tuple[Tensor, Tensor]:
        lse = lses.logsumexp(dim=0)
        return torch.einsum("pbh,pbhd->bhd", (lses - lse).exp(), outputs), lse

    return Case(
        "merge_partials",
        f"{num_partials} partials of {batch} x 32 rows",
        "fp32",
        read_bytes=outputs.nbytes,
        written_bytes=outputs[0].nbytes,
        ours=lambda: merge_partials(outputs, lses),
        peers={"logsumexp and einsum": weighted_sum},
        reference=lambda: merge_partials(outputs, lses, implementation="reference"),
    )
