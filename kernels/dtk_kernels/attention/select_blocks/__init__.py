"""Selection of the blocks to attend to: the best scores, with some blocks always in (top-k, ours)."""

import torch

from dtk_kernels._checks import require_count, require_dtype, require_same_device, require_shapes
from dtk_kernels._operation import Operation

__all__ = ["select_blocks"]

# Results may be longer than there are columns, but beyond this a count is a mistake, to be told before memory
# runs out.
_MOST_PADDED = 2**20


def select_blocks(
    scores: torch.Tensor,
    num_selected: int,
    *,
    forced: torch.Tensor | None = None,
    implementation: str | None = None,
) -> torch.Tensor:
    """Return the columns of the highest scores, in ascending order of column.

    Equal scores: the lower column wins. A score of -inf or NaN is never selected unless it is forced.

    Args:
        scores: float32 `[batch, num_groups, num_blocks]`, from `block_score`.
        num_selected: How many columns to select at most, forced ones included (k of top-k). It may exceed
            num_blocks, up to 2**20.
        forced: bool `[batch, num_blocks]`: columns that are selected whatever their score.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        int32 `[batch, num_groups, num_selected]`: column indices (not pool ids), -1 where there are no more.

    Raises:
        TypeError: num_selected is no integer.
        ValueError: A shape, dtype or device does not fit, num_selected is negative or beyond both num_blocks
            and 2**20, or a row forces more than num_selected columns (not checked on a GPU: the later
            forced ones are left out).
        NotImplementedError: The named implementation is missing here.
    """
    result: torch.Tensor = OPERATION(implementation, scores, num_selected, forced=forced)
    return result


def _check(scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None) -> None:
    if forced is None:
        require_shapes(scores=(scores, ("B", "G", "N")))
    else:
        require_shapes(scores=(scores, ("B", "G", "N")), forced=(forced, ("B", "N")))
        require_dtype((torch.bool,), forced=forced)
        require_same_device(scores=scores, forced=forced)
    require_dtype((torch.float32,), scores=scores)
    require_count("num_selected", num_selected)
    if num_selected > _MOST_PADDED and num_selected > scores.shape[2]:
        raise ValueError(
            f"num_selected must be at most {_MOST_PADDED}, or the {scores.shape[2]} columns of scores if"
            f" they are more, got {num_selected}"
        )


def _fake(scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None) -> torch.Tensor:
    return scores.new_empty((scores.shape[0], scores.shape[1], num_selected), dtype=torch.int32)


OPERATION = Operation(
    "select_blocks",
    schema="(Tensor scores, SymInt num_selected, *, Tensor? forced=None) -> Tensor",
    check=_check,
    fake=_fake,
)
