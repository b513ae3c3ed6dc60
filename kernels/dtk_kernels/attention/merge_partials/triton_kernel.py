# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Merge of partial attention results in Triton: one program folds the partials of one row.

The running maximum of the log-sum-exps keeps the weights within [0, 1], however far apart the partials
lie. All partials of a row (up to 32) are loaded at once, for a merge is all latency: a loop over them would
wait for memory as many times. What a partial with log-sum-exp -inf holds is read, but replaced by zeros.
"""

import torch
import triton.language as tl

from dtk_kernels.triton_support import KernelVariant, jit, launch, next_power_of_2

__all__ = ["aot_variants", "merge_partials"]

_MAX_TILE_ELEMENTS = 4096
_ELEMENTS_A_WARP = 1024


@jit(unspecialized=("num_partials", "num_rows"))
def _merge_partials_kernel(
    outputs: tl.tensor,
    lses: tl.tensor,
    merged: tl.tensor,
    merged_lse: tl.tensor,
    num_partials: tl.tensor,
    num_rows: tl.tensor,
    HEAD_DIM: tl.constexpr,
    TILE_P: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, TILE_D)
    in_dim = channel < HEAD_DIM
    maximum = tl.full([1], float("-inf"), tl.float32)
    weight_sum = tl.zeros([1], tl.float32)
    total = tl.zeros([TILE_D], tl.float32)
    for start in range(0, num_partials, TILE_P):
        partial = start + tl.arange(0, TILE_P)
        inside = partial < num_partials
        at = partial.to(tl.int64) * num_rows + row
        lse = tl.load(lses + at, mask=inside, other=float("-inf"))
        value_at = outputs + at[:, None] * HEAD_DIM + channel[None, :]
        value = tl.load(value_at, mask=inside[:, None] & in_dim[None, :], other=0.0)
        value = tl.where((lse != float("-inf"))[:, None], value, 0.0)
        new_maximum = tl.maximum(maximum, tl.max(lse, axis=0, keep_dims=True))
        # -inf - -inf is NaN; while all partials are empty any finite reference gives the weight 0.
        reference = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        keep = tl.exp(maximum - reference)
        weight = tl.exp(lse - reference)
        total = total * keep + tl.sum(value * weight[:, None], axis=0)
        weight_sum = weight_sum * keep + tl.sum(weight, axis=0, keep_dims=True)
        maximum = new_maximum
    empty = weight_sum == 0.0
    divisor = tl.where(empty, 1.0, weight_sum)
    tl.store(merged + row * HEAD_DIM + channel, total / divisor, mask=in_dim)
    lse = tl.where(empty, float("-inf"), maximum + tl.log(divisor))
    tl.store(merged_lse + row + tl.arange(0, 1), lse)


def _tile_partials(num_partials: int, tile_d: int) -> int:
    return min(next_power_of_2(num_partials), max(_MAX_TILE_ELEMENTS // tile_d, 1))


def _num_warps(tile_p: int, tile_d: int) -> int:
    """Warps that leave each thread 32 values to load, which is what it can have on their way."""
    return min(max(tile_p * tile_d // _ELEMENTS_A_WARP, 1), 4)


def merge_partials(outputs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Combine partial attention results over disjoint sets of keys.

    Args:
        outputs: `[P, ..., D]` fp32, each normalised over its own keys.
        lses: `[P, ...]` fp32 natural-log sums of exponentials; -inf marks an empty partial.

    Returns:
        `(output [..., D], lse [...])`; (0, -inf) where every partial is empty.
    """
    num_partials, head_dim = outputs.shape[0], outputs.shape[-1]
    merged = outputs.new_empty(outputs.shape[1:])
    merged_lse = lses.new_empty(lses.shape[1:])
    tile_d = next_power_of_2(head_dim)
    tile_p = _tile_partials(num_partials, tile_d)
    launch(
        _merge_partials_kernel,
        (merged_lse.numel(),),
        outputs.contiguous(),
        lses.contiguous(),
        merged,
        merged_lse,
        num_partials,
        merged_lse.numel(),
        device=outputs.device,
        HEAD_DIM=head_dim,
        TILE_P=tile_p,
        TILE_D=tile_d,
        num_warps=_num_warps(tile_p, tile_d),
    )
    return merged, merged_lse


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: common head sizes and an odd one, two and many partials."""
    return [_variant(*each) for each in ((2, 128), (32, 128), (2, 80), (32, 256), (32, 64))]


def _variant(num_partials: int, head_dim: int) -> KernelVariant:
    tile_d = next_power_of_2(head_dim)
    tile_p = _tile_partials(num_partials, tile_d)
    return KernelVariant(
        name=f"merge_partials[p{num_partials},d{head_dim}]",
        kernel=_merge_partials_kernel,
        types=dict.fromkeys(("outputs", "lses", "merged", "merged_lse"), "*fp32"),
        constants={"HEAD_DIM": head_dim, "TILE_P": tile_p, "TILE_D": tile_d},
        num_warps=_num_warps(tile_p, tile_d),
    )
