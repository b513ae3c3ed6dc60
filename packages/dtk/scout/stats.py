"""What a decode run measured: host share, churn, query cosine, waits and bytes, by layer and step."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["LayerStats", "mean_or_none"]


@dataclass
class LayerStats:
    """One offloaded layer's measurements, one entry a decode step.

    The entries are 0-dimensional tensors on the layer's device, so that taking them never makes a GPU wait;
    reading a mean does.

    Attributes:
        host_tokens: Mean over the batch of the tokens that the host attended to.
        attended_tokens: Mean over the batch of all tokens attended to, host and device.
        churn: Share of the selected blocks that were not selected at the step before.
        query_cosine: Mean cosine of predicted and real query over batch and heads.
        host_wait_s: Seconds for which the layer waited for the host's share.
        late_host_jobs: Steps whose host share was not finished when the layer needed it.
        recalled_blocks: Blocks copied back to the device, summed over the batch, one entry a recall.
    """

    host_tokens: list[Tensor] = field(default_factory=list)
    attended_tokens: list[Tensor] = field(default_factory=list)
    churn: list[Tensor] = field(default_factory=list)
    query_cosine: list[Tensor] = field(default_factory=list)
    host_wait_s: list[float] = field(default_factory=list)
    late_host_jobs: int = 0
    recalled_blocks: list[Tensor] = field(default_factory=list)

    def host_ratio(self, budget_tokens: int) -> list[float]:
        """Return the CPU ratio of each step: host tokens over the budget (the paper's CPU compute ratio)."""
        return [float(tokens) / budget_tokens for tokens in self.host_tokens]


def mean_or_none(values: list[Tensor]) -> float | None:
    """Return the mean of 0-dimensional tensors, or None where there are none."""
    return float(torch.stack(values).double().mean()) if values else None
