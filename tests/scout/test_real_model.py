"""ScoutAttention on SmolLM2-135M and real text (Python's documentation), in fp32."""

import os
from collections.abc import Iterator

import pytest
import torch

from dtk.models import LoadedModel, load_text
from dtk.scout import ScoutConfig, attach, generate

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

PROMPT_TOKENS = 1536


@pytest.fixture(autouse=True)
def _all_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def prompt(smollm2: LoadedModel) -> torch.Tensor:
    tokenizer = smollm2.tokenizer
    ids = tokenizer(load_text("python-docs").text[:12_000], verbose=False)["input_ids"]
    assert len(ids) > PROMPT_TOKENS
    return torch.tensor(ids[:PROMPT_TOKENS])


def test_budget_above_the_context_equals_stock_generate(smollm2: LoadedModel, prompt: torch.Tensor) -> None:
    model = smollm2.model
    arguments = {
        "max_new_tokens": 12,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    stock = model.generate(prompt[None], attention_mask=torch.ones_like(prompt[None]), **arguments)
    with attach(model, ScoutConfig(budget_tokens=2048)) as session:
        cache = session.new_cache(12)
        scout = model.generate(
            prompt[None], attention_mask=torch.ones_like(prompt[None]), cache=cache, **arguments
        )
    assert torch.equal(scout.sequences, stock.sequences)
    largest = max(float((a - b).abs().max()) for a, b in zip(scout.logits, stock.logits, strict=True))
    assert largest <= 2e-3
    assert cache.host_kv_bytes > 0


def test_sparse_decode_stays_close_to_dense_and_predicts_queries_well(
    smollm2: LoadedModel, prompt: torch.Tensor
) -> None:
    config = ScoutConfig(budget_tokens=512, block_size=32)
    report = generate(smollm2.model, smollm2.tokenizer, prompt, config, max_new_tokens=24, compare_dense=True)
    cosines = [cosine for cosine in report.query_cosine_by_layer if cosine is not None]
    assert len(cosines) == 27
    assert sum(cosines) / len(cosines) >= 0.9
    assert report.dense is not None
    # Loose on purpose: they catch a wrong block, scale or LSE base (KL is then above 1), not small drifts.
    assert report.dense.mean_kl < 0.2
    assert report.dense.token_agreement > 0.6
    assert 0 < report.cpu_ratio < 0.5
    assert report.device_kv_bytes == 27 * (512 + 32) * 2 * 3 * 64 * 4


def test_the_host_share_brings_the_output_closer_to_dense(
    smollm2: LoadedModel, prompt: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the host's share thrown away, the same tokens must be predicted worse."""
    model, start = smollm2.model, PROMPT_TOKENS - 32
    config = ScoutConfig(budget_tokens=512, block_size=32)

    def log_probabilities() -> torch.Tensor:
        with attach(model, config) as session:
            cache = session.new_cache(32)
            model(prompt[None, :start], cache=cache, use_cache=True, logits_to_keep=1)
            steps = [
                model(prompt[None, i : i + 1], cache=cache, use_cache=True).logits[0, -1]
                for i in range(start, PROMPT_TOKENS)
            ]
        return torch.stack(steps).double().log_softmax(dim=-1)

    with torch.no_grad():
        dense = model(prompt[None], use_cache=False, logits_to_keep=32).logits[0].double().log_softmax(dim=-1)
        whole = log_probabilities()
        monkeypatch.setattr(
            "dtk.scout.layer.OffloadedLayer._merge_host_share", lambda self, job, output, lse: output
        )
        device_only = log_probabilities()
    with_share, without = ((dense.exp() * (dense - x)).sum(dim=-1).mean() for x in (whole, device_only))
    assert with_share < without
