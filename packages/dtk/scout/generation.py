"""Generate text with an offloaded KV cache and report what it cost: `dtk scout generate` as a function."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers.decoders import DecodeStream
from torch import Tensor

from dtk.errors import InputError
from dtk.scout.compare import DenseComparison, compare_with_dense
from dtk.scout.config import ScoutConfig
from dtk.scout.decode import Sampling, decode
from dtk.scout.session import ScoutSession, attach
from dtk.scout.transformers_cache import ScoutCache

__all__ = ["GenerationReport", "Progress", "check_request", "generate"]


@dataclass(frozen=True)
class GenerationReport:
    """What one generation produced, took and cost. All figures are measured but one, marked analytic.

    Attributes:
        text: The generated text, special tokens left out.
        token_ids: The generated tokens.
        prompt_tokens: Tokens of the prompt.
        interrupted: Whether Ctrl-C ended it; everything here then covers what was generated before.
        time_to_first_token_s: Seconds from the start of the prefill to the first token.
        tokens_per_s: Decode speed: tokens after the first, over the seconds they took; None for one token.
        device_kv_bytes: K/V in the device tier at the end: budget and tail blocks of the offloaded layers.
        dense_kv_bytes: K/V of the dense layers at the end, on the device too and in full.
        host_kv_bytes: K/V allocated in host memory at the end.
        digest_bytes: Block digests on the device at the end.
        full_kv_bytes: What all K/V would take on the device without offload at the final length (analytic).
        cpu_ratio: Mean over layers and steps of tokens attended on the host, over the budget.
        cpu_ratio_by_layer: The same by model layer; None for layers that are not offloaded.
        cpu_ratio_by_step: Mean over the offloaded layers, a figure a decode step.
        churn: Mean share of selected blocks that were not selected a step earlier; None if never selected.
        query_cosine_by_layer: Mean cosine of predicted and real query by model layer; None where there was
            no prediction.
        attended_tokens: Mean tokens attended to by an offloaded layer in a step, device and host.
        late_host_jobs: Host shares that were not finished when their layer asked for them.
        host_jobs: Layers and steps with a host share.
        host_wait_s: Seconds the layers waited for host shares in all.
        recalled_blocks: Blocks copied back to the device in all; one KV head's part of a block is a fraction.
        dense: The comparison with dense attention, if asked for.
    """

    text: str
    token_ids: list[int]
    prompt_tokens: int
    interrupted: bool
    time_to_first_token_s: float | None
    tokens_per_s: float | None
    device_kv_bytes: int
    dense_kv_bytes: int
    host_kv_bytes: int
    digest_bytes: int
    full_kv_bytes: int
    cpu_ratio: float
    cpu_ratio_by_layer: list[float | None]
    cpu_ratio_by_step: list[float]
    churn: float | None
    query_cosine_by_layer: list[float | None]
    attended_tokens: float | None
    late_host_jobs: int
    host_jobs: int
    host_wait_s: float
    recalled_blocks: float
    dense: DenseComparison | None


@dataclass(frozen=True)
class Progress:
    """Callbacks of a generation.

    Attributes:
        on_text: Called with each new piece of text.
        on_first_token: Called once, when the prefill is done and decoding begins.
        on_compare: Called once, before the dense comparison starts.
    """

    on_text: Callable[[str], None] = lambda text: None
    on_first_token: Callable[[], None] = lambda: None
    on_compare: Callable[[], None] = lambda: None


def generate(
    model: Any,
    tokenizer: Any,
    prompt_ids: Tensor,
    config: ScoutConfig,
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    host_threads: int = 1,
    compare_dense: bool = False,
    progress: Progress | None = None,
) -> GenerationReport:
    """Generate from one prompt with ScoutAttention and report.

    Ctrl-C ends the generation early, not the report.

    Args:
        model: A supported Hugging Face causal model.
        tokenizer: Its fast tokenizer.
        prompt_ids: int64 [prompt tokens].
        config: Settings of the cache.
        max_new_tokens: At most so many tokens; an end-of-text token ends earlier.
        sampling: Greedy if None.
        host_threads: CPU threads for the host's share.
        compare_dense: Compare every step with dense attention afterwards; greedy decoding only.
        progress: Callbacks.

    Raises:
        InputError: If the prompt is empty, prompt and new tokens exceed the model's context, or a comparison
            is asked for with sampling.
    """
    check_request(max_new_tokens, sampling, compare_dense)
    if prompt_ids.ndim != 1:
        raise InputError(
            "must be the token ids of one prompt, of one dimension",
            field="prompt_ids",
            value=list(prompt_ids.shape),
            hint="for a batch, use attach() and the model's own generate()",
        )
    _check_length(model, len(prompt_ids), max_new_tokens)
    known = model.get_input_embeddings().num_embeddings
    if int(prompt_ids.max()) >= known:
        raise InputError(
            f"holds a token beyond the model's vocabulary of {known}",
            field="prompt",
            value=int(prompt_ids.max()),
            hint="tokenizer and model do not belong together, or the prompt names a special token",
        )
    progress = progress or Progress()
    with attach(model, config, host_threads=host_threads) as session:
        cache = session.new_cache(max_new_tokens)
        run, dense = _Run(tokenizer, progress), None
        try:
            steps = decode(
                model,
                cache,
                prompt_ids,
                max_new_tokens=max_new_tokens,
                stop_ids=_stop_ids(model),
                sampling=sampling,
            )
            for step in steps:
                run.take(step.token, step.logits if compare_dense else None)
            if compare_dense:
                progress.on_compare()
                dense = compare_with_dense(model, prompt_ids, run.tokens, torch.stack(run.logits))
        except KeyboardInterrupt:
            run.interrupted = True
        return _report(run, session, cache, model, len(prompt_ids), dense)


class _Run:
    """Tokens, text and times of a generation as it goes."""

    def __init__(self, tokenizer: Any, progress: Progress) -> None:
        self.tokens: list[int] = []
        self.logits: list[Tensor] = []
        self.times: list[float] = []
        self.text = ""
        self.interrupted = False
        self.began = time.perf_counter()
        self._progress = progress
        self._tokenizer = tokenizer.backend_tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)

    def take(self, token: int, logits: Tensor | None) -> None:
        self.times.append(time.perf_counter())
        if not self.tokens:
            self._progress.on_first_token()
        self.tokens.append(token)
        if logits is not None:
            self.logits.append(logits)
        piece = self._stream.step(self._tokenizer, token)
        if piece:
            self.text += piece
            self._progress.on_text(piece)

    @property
    def tokens_per_s(self) -> float | None:
        if len(self.times) < 2:
            return None
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


def check_request(max_new_tokens: int, sampling: Sampling | None, compare_dense: bool) -> None:
    """Check what can be checked before a model is loaded.

    Raises:
        InputError: As `generate` does.
    """
    if max_new_tokens < 1:
        raise InputError("must be at least 1", field="max_new_tokens", value=max_new_tokens)
    temperature = sampling.temperature if sampling is not None else 0.0
    if not 0 <= temperature < math.inf:
        raise InputError("must be a number from 0 up", field="temperature", value=temperature)
    if compare_dense and temperature > 0:
        raise InputError(
            "cannot be compared with dense attention",
            field="temperature",
            value=temperature,
            hint="use temperature 0",
        )


def _check_length(model: Any, prompt_tokens: int, max_new_tokens: int) -> None:
    limit = model.config.max_position_embeddings
    if not prompt_tokens:
        raise InputError("the prompt has no tokens", field="prompt", hint="does the model have a tokenizer?")
    if prompt_tokens >= limit:
        raise InputError(
            f"{prompt_tokens} tokens leave no room in the model's context of {limit}",
            field="prompt",
            hint=f"keep at most {limit - 1} tokens of it (--max-prompt-tokens)",
        )
    if prompt_tokens + max_new_tokens > limit:
        raise InputError(
            f"{prompt_tokens} prompt and {max_new_tokens} new tokens exceed the model's context of {limit}",
            field="max_new_tokens",
            value=max_new_tokens,
            hint=f"at most {limit - prompt_tokens} new tokens fit behind this prompt",
        )


def _stop_ids(model: Any) -> set[int]:
    ends = model.generation_config.eos_token_id
    return set(ends) if isinstance(ends, list) else set() if ends is None else {ends}


def _report(
    run: _Run,
    session: ScoutSession,
    cache: ScoutCache,
    model: Any,
    prompt_tokens: int,
    dense: DenseComparison | None,
) -> GenerationReport:
    stats = {index: layer.offloaded.stats for index, layer in cache.offloaded.items()}
    num_layers, steps = len(cache.layers), max(len(run.tokens) - 1, 0)

    def of_layers(column: str) -> Tensor:
        # Ctrl-C within a forward pass leaves the first layers a step ahead of the last token.
        return torch.stack([getattr(one, column)[:steps].double() for one in stats.values()])

    def by_layer(means: Tensor) -> list[float | None]:
        found = dict(zip(stats, means.tolist(), strict=True))
        return [_number(found.get(index)) for index in range(num_layers)]

    ratios = of_layers("host_tokens") / session.config.budget_tokens if steps else torch.zeros(len(stats), 1)
    cosines = of_layers("query_cosine")
    return GenerationReport(
        text=run.text,
        token_ids=run.tokens,
        prompt_tokens=prompt_tokens,
        interrupted=run.interrupted,
        time_to_first_token_s=run.times[0] - run.began if run.times else None,
        tokens_per_s=run.tokens_per_s,
        device_kv_bytes=cache.device_kv_bytes,
        dense_kv_bytes=cache.dense_kv_bytes,
        host_kv_bytes=cache.host_kv_bytes,
        digest_bytes=cache.digest_bytes,
        full_kv_bytes=_full_kv_bytes(session, model, prompt_tokens + steps),
        cpu_ratio=float(ratios.mean()),
        cpu_ratio_by_layer=by_layer(ratios.mean(dim=1)),
        cpu_ratio_by_step=ratios.mean(dim=0).tolist() if steps else [],
        churn=_number(of_layers("churn").nanmean().item()),
        query_cosine_by_layer=by_layer(cosines.nanmean(dim=1)),
        attended_tokens=_number(of_layers("attended_tokens").mean().item()),
        late_host_jobs=sum(one.late_host_jobs for one in stats.values()),
        host_jobs=int((of_layers("host_tokens") > 0).sum()),
        host_wait_s=sum(one.host_wait_s for one in stats.values()),
        recalled_blocks=float(of_layers("recalled_blocks").sum()),
        dense=dense,
    )


def _number(value: float | None) -> float | None:
    """Return None for what was not measured, which the statistics hold as NaN."""
    return None if value is None or math.isnan(value) else value


def _full_kv_bytes(session: ScoutSession, model: Any, tokens: int) -> int:
    config = model.config
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kept = sum(tokens if window is None else min(tokens, window) for window in session.sliding_windows)
    return int(2 * config.num_key_value_heads * head_size * model.dtype.itemsize * kept)
