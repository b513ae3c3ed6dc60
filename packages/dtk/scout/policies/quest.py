"""Block selection by Quest's bound: the highest score that any key of the block could have."""

from typing import Literal

import torch
from torch import Tensor

from dtk.scout.config import ScoutConfig
from dtk_kernels.attention import block_score, select_blocks

__all__ = ["QuestSelection"]


class QuestSelection:
    """Scores blocks by their digests and selects a budget of them (section 3.2; Quest, arXiv 2406.10774)."""

    def __init__(self, config: ScoutConfig) -> None:
        self._budget_blocks = config.budget_blocks
        self._sink_blocks = config.sink_blocks
        self._recent_blocks = config.recent_blocks
        self._max_over_heads = config.score_reduction == "max"

    def score(self, query: Tensor, key_min: Tensor, key_max: Tensor, num_blocks: Tensor) -> Tensor:
        """Score every block of every row.

        Args:
            query: [rows, query heads, head size].
            key_min: [rows, blocks, KV heads, head size], the digests; likewise `key_max`.
            key_max: See `key_min`.
            num_blocks: int32 [rows], how many blocks each row has.

        Returns:
            fp32 [rows, blocks], -inf from `num_blocks` on.
        """
        rows, blocks = key_min.shape[:2]
        ids = torch.arange(rows * blocks, dtype=torch.int32, device=query.device).view(rows, blocks)
        column = torch.arange(blocks, dtype=torch.int32, device=query.device)
        table = torch.where(column < num_blocks[:, None], ids, -1)
        reduction: Literal["group_max", "layer"] = "group_max" if self._max_over_heads else "layer"
        scores = block_score(
            query, key_min.flatten(0, 1), key_max.flatten(0, 1), table, head_reduction=reduction
        )
        return scores.amax(dim=1)

    def forced(self, num_blocks: Tensor, width: int) -> Tensor:
        """Return bool [rows, width]: the sink and the newest full blocks, which are always selected."""
        column = torch.arange(width, dtype=torch.int32, device=num_blocks.device)
        count = num_blocks[:, None]
        sink = column < self._sink_blocks
        recent = column >= count - self._recent_blocks
        return (sink | recent) & (column < count)

    def select(self, scores: Tensor, forced: Tensor) -> Tensor:
        """Return int32 [rows, at most budget blocks]: the selected block ids, ascending, -1 past the last."""
        count = min(self._budget_blocks, scores.shape[1])
        return select_blocks(scores[:, None], count, forced=forced)[:, 0]
