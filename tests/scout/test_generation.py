"""Generation from one prompt: the loop, the report, the comparison with dense attention, Ctrl-C."""

import math
from typing import Any

import pytest
import torch

from dtk.errors import InputError
from dtk.models import TinyShape, byte_tokenizer, tiny_model
from dtk.scout import GenerationReport, ScoutConfig, generate
from dtk.scout.compare import compare_with_dense
from dtk.scout.decode import Sampling
from dtk.scout.generation import Progress

SHAPE = TinyShape(num_layers=5, num_heads=6, num_kv_heads=2, hidden_size=96, head_dim=16, context_tokens=256)
SPARSE = ScoutConfig(budget_tokens=32, block_size=8, dense_layers=2, recall_interval=4)
PROMPT = torch.arange(120) * 7 % 256


def run(config: ScoutConfig = SPARSE, prompt: torch.Tensor = PROMPT, **arguments: Any) -> GenerationReport:
    model = tiny_model("llama", seed=2, shape=SHAPE)
    return generate(model, byte_tokenizer(), prompt, config, **({"max_new_tokens": 20} | arguments))


def test_greedy_text_equals_stock_generate_where_everything_fits() -> None:
    report = run(ScoutConfig(budget_tokens=256, block_size=8), compare_dense=True)
    model = tiny_model("llama", seed=2, shape=SHAPE)
    stock = model.generate(PROMPT[None], max_new_tokens=20, do_sample=False)[0, len(PROMPT) :].tolist()
    assert report.token_ids == stock
    assert report.text == byte_tokenizer().decode(stock, skip_special_tokens=True)
    assert report.dense is not None
    assert report.dense.token_agreement == 1
    assert report.dense.first_disagreement is None
    assert report.dense.max_kl < 1e-8
    assert report.cpu_ratio == 0
    assert report.churn is None
    assert report.query_cosine_by_layer == [None] * 5


def test_report_of_a_sparse_run_adds_up() -> None:
    report = run(compare_dense=True, max_new_tokens=17)
    tokens = len(report.token_ids)
    assert report.prompt_tokens == 120
    per_token_layer = 2 * 2 * 16 * 4
    assert report.full_kv_bytes == 5 * (120 + tokens - 1) * per_token_layer
    assert report.device_kv_bytes == 3 * (32 + 8) * per_token_layer
    assert report.dense_kv_bytes == 2 * (120 + tokens - 1) * per_token_layer
    assert report.host_kv_bytes >= 3 * 15 * 8 * per_token_layer
    assert report.cpu_ratio_by_layer[:2] == [None, None]
    by_layer = [ratio for ratio in report.cpu_ratio_by_layer if ratio is not None]
    assert len(by_layer) == 3
    assert len(report.cpu_ratio_by_step) == tokens - 1
    assert report.cpu_ratio == pytest.approx(sum(by_layer) / 3)
    assert report.cpu_ratio == pytest.approx(sum(report.cpu_ratio_by_step) / (tokens - 1))
    assert 0 < report.cpu_ratio < 1
    assert report.churn is not None
    assert 0 < report.churn < 1
    assert report.query_cosine_by_layer[:2] == [None, None]
    assert all(cosine is not None and -1 <= cosine <= 1 for cosine in report.query_cosine_by_layer[2:])
    assert report.attended_tokens is not None
    # All slots are full throughout; the tail, of 120 prompt tokens and blocks of 8, holds 1 to 8 tokens.
    tails = [1 + step % 8 for step in range(tokens - 1)]
    assert report.attended_tokens == pytest.approx(32 + sum(tails) / len(tails) + report.cpu_ratio * 32)
    assert 0 < report.host_jobs <= 3 * (tokens - 1)
    assert report.recalled_blocks > 0


def test_comparison_is_the_one_of_a_dense_model_in_fp64() -> None:
    model = tiny_model("qwen2", seed=4, shape=SHAPE)
    tokens = [5, 9, 200]
    logits = torch.randn(3, 258, generator=torch.Generator().manual_seed(0))
    comparison = compare_with_dense(model, PROMPT[:30], tokens, logits)
    inputs = torch.cat([PROMPT[:30], torch.tensor(tokens)])[None]
    with torch.no_grad():
        dense = model.double()(inputs).logits[0, 29:32].softmax(dim=-1)
    scout = logits.double().softmax(dim=-1)
    kl = [
        sum(float(p * math.log(p / q)) for p, q in zip(d, s, strict=True))
        for d, s in zip(dense, scout, strict=True)
    ]
    assert comparison.mean_kl == pytest.approx(sum(kl) / 3, rel=1e-4)
    assert comparison.max_kl == pytest.approx(max(kl), rel=1e-4)
    same = [int(d.argmax()) == token for d, token in zip(dense, tokens, strict=True)]
    assert comparison.token_agreement == pytest.approx(sum(same) / 3)
    assert comparison.first_disagreement == same.index(False)


def test_stops_at_the_end_of_text() -> None:
    model = tiny_model("llama", seed=2, shape=SHAPE)
    free = generate(model, byte_tokenizer(), PROMPT, SPARSE, max_new_tokens=20)
    model.generation_config.eos_token_id = [free.token_ids[5], 257]
    stopped = generate(model, byte_tokenizer(), PROMPT, SPARSE, max_new_tokens=20)
    first = free.token_ids.index(free.token_ids[5])
    assert stopped.token_ids == free.token_ids[: first + 1]


def test_one_token_has_no_decode_speed_and_no_host_share() -> None:
    report = run(max_new_tokens=1)
    assert len(report.token_ids) == 1
    assert report.tokens_per_s is None
    assert report.cpu_ratio == 0
    assert report.cpu_ratio_by_step == []


def test_one_token_prompt_grows_past_the_budget() -> None:
    report = run(prompt=PROMPT[:1], max_new_tokens=60, compare_dense=True)
    # The context outgrows the budget on the way; until then every token is that of dense attention.
    assert report.query_cosine_by_layer[2] is not None
    assert report.dense is not None
    assert report.dense.first_disagreement is None or report.dense.first_disagreement >= 32


def test_sampling_follows_its_seed() -> None:
    texts = [run(sampling=Sampling(1.0, seed)).token_ids for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_ctrl_c_keeps_what_was_generated() -> None:
    pieces: list[str] = []

    def interrupt_late(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 6:
            raise KeyboardInterrupt

    whole = run()
    report = run(progress=Progress(on_text=interrupt_late), compare_dense=True)
    assert report.interrupted
    assert report.dense is None
    assert 0 < len(report.token_ids) < 20
    assert report.token_ids == whole.token_ids[: len(report.token_ids)]
    assert report.text == "".join(pieces)


@pytest.mark.parametrize("layer", range(5))
def test_ctrl_c_within_a_forward_pass_keeps_the_report(layer: int) -> None:
    model, calls = tiny_model("llama", seed=2, shape=SHAPE), 0

    def interrupt_the_eighth(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt

    model.model.layers[layer].mlp.register_forward_pre_hook(interrupt_the_eighth)
    report = generate(model, byte_tokenizer(), PROMPT, SPARSE, max_new_tokens=20)
    assert report.interrupted
    assert len(report.token_ids) == 7
    assert len(report.cpu_ratio_by_step) == 6
    assert report.cpu_ratio == pytest.approx(run(max_new_tokens=7).cpu_ratio)


def test_ctrl_c_during_the_comparison_keeps_the_text() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    report = run(compare_dense=True, progress=Progress(on_compare=interrupt))
    assert report.interrupted
    assert report.dense is None
    assert report.token_ids == run().token_ids


def test_smallest_temperature_is_greedy() -> None:
    assert run(sampling=Sampling(1e-45)).token_ids == run().token_ids


def test_text_streams_whole_characters() -> None:
    """A character of several byte tokens must not come out in halves."""
    text = "é中🙂"
    model, pieces = tiny_model("llama", seed=2, shape=SHAPE), []
    forced = iter([*text.encode(), 257])

    class Forced:
        def __call__(self, logits: torch.Tensor, *_: object) -> int:
            return next(forced)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtk.scout.decode._choose", Forced())
        report = generate(
            model,
            byte_tokenizer(),
            PROMPT,
            SPARSE,
            max_new_tokens=20,
            progress=Progress(on_text=pieces.append),
        )
    assert report.text == text
    assert pieces == list(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: must be at least 1"),
        (
            {"max_new_tokens": 137},
            r"120 prompt and 137 new tokens exceed the model's context of 256.* 136 new",
        ),
        ({"prompt": torch.zeros(256, dtype=torch.int64)}, "prompt: 256 tokens leave no room .* at most 255"),
        ({"prompt": PROMPT + 258}, "prompt: holds a token beyond the model's vocabulary of 258"),
        ({"prompt": PROMPT[None]}, "prompt_ids: must be the token ids of one prompt"),
        ({"prompt": PROMPT[:0]}, "prompt: the prompt has no tokens"),
        ({"sampling": Sampling(-0.5)}, "temperature: must be a number from 0 up"),
        ({"sampling": Sampling(math.nan)}, "temperature: must be a number from 0 up"),
        ({"sampling": Sampling(0.5), "compare_dense": True}, "temperature: cannot be compared"),
        ({"host_threads": 0}, "host_threads: must be a whole number from 1"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(**arguments)
