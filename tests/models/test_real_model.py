"""SmolLM2 itself: it answers, it stops, its tokenizer and weights are those of the GGUF file."""

import json

import pytest
import torch

from dtk.models import available, load_text, path
from tests.models import bpe

pytestmark = [pytest.mark.real_model, pytest.mark.slow]


def _greedy(loaded, inputs, max_new_tokens):
    with torch.inference_mode():
        output = loaded.model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
    return output[0, inputs["input_ids"].shape[1] :]


def test_completes_a_fact(smollm2):
    inputs = smollm2.tokenizer("The capital of France is", return_tensors="pt")
    assert smollm2.tokenizer.decode(_greedy(smollm2, inputs, 3)).startswith(" Paris")


def test_chat_answers_and_stops(smollm2):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = smollm2.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
    answer = _greedy(smollm2, inputs, 40)
    assert answer[-1] == smollm2.tokenizer.eos_token_id
    assert len(answer) < 40, "the end token did not stop it"
    assert "Paris" in smollm2.tokenizer.decode(answer, skip_special_tokens=True)


def test_ids_that_others_have_published(smollm2):
    # From public test suites of engines that run SmolLM2-135M-Instruct with the tokenizer of its repository.
    tokenizer = smollm2.tokenizer
    assert tokenizer("Hello world")["input_ids"] == [19556, 905]
    fox = "The quick brown fox jumps over the lazy dog"
    assert tokenizer(fox)["input_ids"] == [504, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767]
    months = "The year 2024 had 365 days; 12 months."
    expected = [504, 713, 216, 34, 32, 34, 36, 761, 216, 35, 38, 37, 2009, 43, 216, 33, 34, 2704, 30]
    assert tokenizer(months)["input_ids"] == expected
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    system = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407]
    user = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198]
    assert ids == [*system, 19712, 8182, 2, 198, *user, 1, 520, 9531, 198]


@pytest.mark.parametrize("name", ["python-docs", "python-source"])
def test_real_text_round_trips_and_matches_plain_bpe(name, smollm2):
    text = load_text(name).text
    text = text[len(text) // 2 :][:60_000]
    ids = smollm2.tokenizer(text)["input_ids"]
    assert smollm2.tokenizer.decode(ids) == text
    document = json.loads((smollm2.source / "tokenizer.json").read_text(encoding="utf-8"))
    merges = [tuple(pair) for pair in document["model"]["merges"]]
    special = [token["content"] for token in document["added_tokens"]]
    assert ids == bpe.encode(text, document["model"]["vocab"], merges, special)


def test_text_is_likely_and_shuffled_text_is_not(smollm2):
    """Wrongly permuted or rotated weights show here: the wrong RoPE form gives a perplexity near 200."""
    text = "The Moon is the only natural satellite of the Earth. It goes around the Earth once every month."
    ids = smollm2.tokenizer(text, return_tensors="pt")["input_ids"]
    shuffled = ids[:, torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))]
    with torch.inference_mode():
        perplexity, noise = (float(smollm2.model(x, labels=x).loss.exp()) for x in (ids, shuffled))
    assert perplexity < 20
    assert noise > 500


def test_the_cache_holds_what_the_registry_says(smollm2):
    info = next(info for info in available() if info.entry.name == "smollm2-135m")
    assert info.folder == path("smollm2-135m") == smollm2.source
    assert abs(info.size_bytes - info.entry.disk_bytes) < 0.01 * info.entry.disk_bytes
    assert sum(parameter.numel() for parameter in smollm2.model.parameters()) == info.entry.parameters
    assert smollm2.context_length == info.entry.context_tokens == 8192
    assert smollm2.model.generation_config.eos_token_id == smollm2.tokenizer.eos_token_id == 2
    assert smollm2.tokenizer.bos_token_id == 1
