"""Merge of partial results in plain torch: the oracle of the other implementations."""

import torch

__all__ = ["merge_partials"]


def merge_partials(outputs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean of `outputs` weighted by exp(lse), and the log-sum-exp of `lses`."""
    empty = lses == float("-inf")
    peak = lses.amax(dim=0)
    peak = peak.masked_fill(peak == float("-inf"), 0.0)  # keeps -inf - -inf out of the exponent
    weights = (lses - peak).exp()
    total = weights.sum(dim=0)
    weighted = (weights[..., None] * outputs.masked_fill(empty[..., None], 0.0)).sum(dim=0)
    all_empty = empty.all(dim=0)
    output = weighted / total.masked_fill(all_empty, 1.0)[..., None]
    return output, peak + total.log()
