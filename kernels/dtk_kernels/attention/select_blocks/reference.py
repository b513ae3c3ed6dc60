"""Selection of blocks in plain torch: the oracle of the other implementations."""

import torch

__all__ = ["select_blocks"]


def select_blocks(
    scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the columns of the `num_selected` best scores, ascending, forced ones always in, -1 padded."""
    batch, _, num_blocks = scores.shape
    if forced is None:
        forced = scores.new_zeros((batch, num_blocks), dtype=torch.bool)
    most_forced = int(forced.sum(dim=-1).max()) if forced.numel() else 0
    if most_forced > num_selected:
        raise ValueError(f"num_selected is {num_selected}, but a row of forced has {most_forced} columns set")
    forced = forced[:, None].expand_as(scores)
    eligible = forced | (scores > float("-inf"))

    # Two stable sorts, the more important key last: forced columns first, then by score, then by column.
    by_score = scores.nan_to_num(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
    order = by_score.sort(dim=-1, descending=True, stable=True).indices
    rank = forced.gather(-1, order).int() * 2 + eligible.gather(-1, order).int()
    order = order.gather(-1, rank.sort(dim=-1, descending=True, stable=True).indices)

    best = order[..., :num_selected]
    chosen = torch.where(eligible.gather(-1, best), best, num_blocks).sort(dim=-1).values
    chosen = torch.where(chosen == num_blocks, -1, chosen).int()
    return torch.nn.functional.pad(chosen, (0, num_selected - chosen.shape[-1]), value=-1)
