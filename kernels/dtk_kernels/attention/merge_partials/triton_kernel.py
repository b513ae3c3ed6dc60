# ruff: noqa: N803 - Triton names its compile-time parameters in capitals
"""Merge of partial attention results in Triton: one program folds all partials of a run of rows.

The running maximum of the log-sum-exps keeps the weights within [0, 1], however far apart the partials
lie. Outputs whose log-sum-exp is -inf are not even read.
"""

import torch
import triton.language as tl

from dtk_kernels.triton_support import KernelVariant, ceil_div, jit, launch, next_power_of_2

__all__ = ["aot_variants", "merge_partials"]

# Small, because a decode step has few rows and many multiprocessors to spread them over.
_TILE_ELEMENTS = 512
_NUM_WARPS = 2


@jit
def _merge_partials_kernel(
    outputs: tl.tensor,
    lses: tl.tensor,
    merged: tl.tensor,
    merged_lse: tl.tensor,
    num_partials: tl.tensor,
    num_rows: tl.tensor,
    HEAD_DIM: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_D: tl.constexpr,
) -> None:
    row = (tl.program_id(0) * TILE_R + tl.arange(0, TILE_R)).to(tl.int64)
    channel = tl.arange(0, TILE_D)
    in_dim = (channel < HEAD_DIM)[None, :]
    maximum = tl.full([TILE_R], float("-inf"), tl.float32)
    weight_sum = tl.zeros([TILE_R], tl.float32)
    total = tl.zeros([TILE_R, TILE_D], tl.float32)
    for partial in range(num_partials):
        at = row + partial * num_rows
        lse = tl.load(lses + at, mask=row < num_rows, other=float("-inf"))
        present = lse != float("-inf")
        value = tl.load(
            outputs + at[:, None] * HEAD_DIM + channel[None, :], mask=present[:, None] & in_dim, other=0.0
        )
        new_maximum = tl.maximum(maximum, lse)
        # -inf - -inf is NaN; while all partials are empty any finite reference gives the weight 0.
        reference = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        keep = tl.exp(maximum - reference)
        weight = tl.exp(lse - reference)
        total = total * keep[:, None] + value * weight[:, None]
        weight_sum = weight_sum * keep + weight
        maximum = new_maximum
    empty = weight_sum == 0.0
    divisor = tl.where(empty, 1.0, weight_sum)
    out = merged + row[:, None] * HEAD_DIM + channel[None, :]
    tl.store(out, total / divisor[:, None], mask=(row < num_rows)[:, None] & in_dim)
    lse = tl.where(empty, float("-inf"), maximum + tl.log(divisor))
    tl.store(merged_lse + row, lse, mask=row < num_rows)


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
    num_rows = merged_lse.numel()
    tile_d = next_power_of_2(head_dim)
    tile_r = next_power_of_2(min(num_rows, max(_TILE_ELEMENTS // tile_d, 1)))
    launch(
        _merge_partials_kernel,
        (ceil_div(num_rows, tile_r),),
        outputs.contiguous(),
        lses.contiguous(),
        merged,
        merged_lse,
        num_partials,
        num_rows,
        device=outputs.device,
        TILE_R=tile_r,
        HEAD_DIM=head_dim,
        TILE_D=tile_d,
        num_warps=_NUM_WARPS,
    )
    return merged, merged_lse


def aot_variants() -> list[KernelVariant]:
    """What ahead-of-time compilation builds: common head sizes and an odd one."""
    return [
        KernelVariant(
            name=f"merge_partials[d{head_dim}]",
            kernel=_merge_partials_kernel,
            types={"outputs": "*fp32", "lses": "*fp32", "merged": "*fp32", "merged_lse": "*fp32"},
            constants={
                "TILE_R": _TILE_ELEMENTS // next_power_of_2(head_dim),
                "HEAD_DIM": head_dim,
                "TILE_D": next_power_of_2(head_dim),
            },
            num_warps=_NUM_WARPS,
        )
        for head_dim in (64, 80, 128, 256)
    ]
