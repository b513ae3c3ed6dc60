"""SmolLM2 itself: it answers, it stops, its tokenizer and weights are those of the GGUF file."""

import pytest
import torch

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
