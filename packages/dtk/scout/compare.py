"""Compare what ScoutAttention generated with what dense attention would have, at the same prefixes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["DenseComparison", "compare_with_dense"]


@dataclass(frozen=True)
class DenseComparison:
    """Dense attention's view of a generated text, position by position.

    One dense forward pass over prompt and generated tokens gives dense attention's next-token distribution at
    every generated position, given the *same* tokens before it. Up to the first disagreement, the text is
    therefore exactly what dense greedy decoding would have written.

    Attributes:
        token_agreement: Share of positions at which dense attention's likeliest token is the generated one.
        mean_kl: Mean over positions of KL(dense || scout) in nats.
        max_kl: The largest of these.
        max_logit_difference: Largest absolute difference of a logit.
        first_disagreement: Index of the first generated token that dense greedy decoding would not have
            written, None if there is none.
    """

    token_agreement: float
    mean_kl: float
    max_kl: float
    max_logit_difference: float
    first_disagreement: int | None


@torch.no_grad()
def compare_with_dense(model: Any, prompt_ids: Tensor, tokens: list[int], logits: Tensor) -> DenseComparison:
    """Run dense attention once over prompt and generated tokens and compare.

    Args:
        model: The Hugging Face causal model; a ScoutAttention session may be attached.
        prompt_ids: int64 [prompt tokens].
        tokens: The generated tokens, chosen greedily.
        logits: fp32 [tokens, vocabulary], what they were chosen from.
    """
    inputs = torch.cat([prompt_ids, torch.tensor(tokens[:-1], dtype=prompt_ids.dtype, device="cpu")])[None]
    dense = (
        model(inputs.to(model.device), use_cache=False, logits_to_keep=len(tokens)).logits[0].float().cpu()
    )
    dense_log, scout_log = dense.double().log_softmax(dim=-1), logits.double().log_softmax(dim=-1)
    divergence = (dense_log.exp() * (dense_log - scout_log)).sum(dim=-1)
    same = (dense.argmax(dim=-1) == torch.tensor(tokens, device="cpu")).tolist()
    return DenseComparison(
        token_agreement=sum(same) / len(same),
        mean_kl=float(divergence.mean()),
        max_kl=float(divergence.max()),
        max_logit_difference=float((dense - logits).abs().max()),
        first_disagreement=same.index(False) if False in same else None,
    )
