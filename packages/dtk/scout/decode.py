"""A plain decode loop over a `ScoutCache`: one prompt, token by token, in the caller's hands."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dtk.scout.transformers_cache import ScoutCache
from dtk.scout.transformers_model import cache_argument

__all__ = ["Sampling", "Step", "decode"]


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 takes the likeliest token (greedy); above 0 samples from the tempered distribution.
        seed: Seed of the sampling.
    """

    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """One new token.

    Attributes:
        token: Its id.
        logits: fp32 [vocabulary], what it was chosen from, on the CPU.
        is_last: Whether it ends the text.
    """

    token: int
    logits: Tensor
    is_last: bool


@torch.no_grad()
def decode(
    model: Any,
    cache: ScoutCache,
    prompt_ids: Tensor,
    *,
    max_new_tokens: int,
    stop_ids: Collection[int] = (),
    sampling: Sampling | None = None,
) -> Iterator[Step]:
    """Yield up to `max_new_tokens` tokens that follow the prompt; the first comes after the whole prefill.

    Args:
        model: A Hugging Face causal model with ScoutAttention attached.
        cache: An empty cache of that session.
        prompt_ids: int64 [prompt tokens].
        max_new_tokens: At least 1.
        stop_ids: Token ids that end the text (they are yielded).
        sampling: Greedy if None.
    """
    sampling = sampling or Sampling()
    generator = torch.Generator().manual_seed(sampling.seed)
    inputs = prompt_ids[None].to(model.device)
    name = cache_argument(model)
    for position in range(max_new_tokens):
        logits = model(inputs, use_cache=True, logits_to_keep=1, **{name: cache}).logits[0, -1].float().cpu()
        token = _choose(logits, sampling.temperature, generator)
        is_last = token in stop_ids or position + 1 == max_new_tokens
        yield Step(token, logits, is_last)
        if is_last:
            return
        inputs = torch.tensor([[token]], device=model.device)


def _choose(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    # From the largest logit down and in fp64, so that the smallest temperature overflows nothing.
    tempered = (logits - logits.max()).double() / temperature
    return int(torch.multinomial(tempered.softmax(dim=-1), 1, generator=generator))
