"""Shapes from Hugging Face configurations count exactly what the library's own models hold."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dtk.errors import InputError
from dtk.workload.huggingface import MODEL_TYPES, shape_from_config, shape_from_config_file
from dtk.workload.parameters import count_parameters

LLAMA: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
GPT2: dict[str, Any] = {"vocab_size": 101, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 32}
OPT: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "ffn_dim": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 32,
    "word_embed_proj_dim": 48,
}
NEOX: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", GPT2),
    ("gpt2", GPT2 | {"n_inner": 70}),
    ("gpt2", GPT2 | {"tie_word_embeddings": False}),
    ("opt", OPT),
    ("opt", OPT | {"word_embed_proj_dim": 20, "do_layer_norm_before": False}),
    ("opt", OPT | {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    ("opt", OPT | {"_remove_final_layer_norm": True, "tie_word_embeddings": False}),
    ("llama", LLAMA),
    ("llama", LLAMA | {"head_dim": 10, "attention_bias": True, "mlp_bias": True}),
    ("llama", LLAMA | {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    ("mistral", LLAMA | {"sliding_window": None}),
    ("mistral", LLAMA | {"head_dim": 12, "sliding_window": None}),
    ("qwen2", LLAMA),
    ("qwen2", LLAMA | {"tie_word_embeddings": True}),
    ("qwen3", LLAMA | {"head_dim": 16}),
    ("qwen3", LLAMA | {"attention_bias": True}),
    ("gemma", LLAMA),
    ("gemma", LLAMA | {"tie_word_embeddings": False, "attention_bias": True}),
    ("gpt_neox", NEOX),
    ("gpt_neox", NEOX | {"attention_bias": False, "tie_word_embeddings": True}),
]


@pytest.mark.parametrize(("model_type", "sizes"), CASES)
def test_the_count_is_the_library_s(model_type: str, sizes: dict[str, Any], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    expected = sum(parameter.numel() for parameter in model.parameters())

    assert count_parameters(shape_from_config(config)) == expected
    config.save_pretrained(tmp_path)
    shape = shape_from_config_file(tmp_path / "config.json")
    assert count_parameters(shape) == expected
    assert shape.name == tmp_path.name


def test_importing_needs_no_transformers() -> None:
    code = "import sys, dtk.workload; dtk.workload.load_shape('gpt2'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "scipy"} & set(run.stdout.split())


def test_internlm_has_biases_in_attention() -> None:
    sizes = {key: value for key, value in LLAMA.items() if key not in {"num_key_value_heads", "head_dim"}}
    plain, biased = (
        count_parameters(shape_from_config({"model_type": "internlm", "bias": bias} | sizes))
        for bias in (False, True)
    )
    assert biased - plain == 3 * 4 * 48


def test_a_window_is_ignored_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        shape_from_config({"model_type": "mistral", "sliding_window": 512} | LLAMA)
        assert "window of 512 tokens is ignored" in caplog.text
        shape_from_config({"model_type": "mistral", "sliding_window": "\x1b[31m"} | LLAMA)
        assert "\x1b" not in caplog.messages[-1]
        caplog.clear()
        shape_from_config({"model_type": "qwen2", "sliding_window": 512, "use_sliding_window": False} | LLAMA)
        assert not caplog.records


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "mixtral"}, r"model_type: is not a dense decoder.*known ones: gemma, gpt2"),
        ({}, "model_type"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"model_type": "llama"}, "num_hidden_layers: is missing"),
        ({"model_type": "llama"} | LLAMA | {"hidden_size": "48"}, "hidden_size: must be a valid integer"),
        (
            {"model_type": "llama"} | LLAMA | {"num_attention_heads": True},
            "num_attention_heads: must be a number",
        ),
        (
            {"model_type": "llama"} | LLAMA | {"num_key_value_heads": 4},
            r"num_key_value_heads \(4\) must divide num_attention_heads \(6\)",
        ),
        ({"model_type": "llama"} | LLAMA | {"hidden_size": 0}, "hidden_size"),
        ({"model_type": "llama"} | LLAMA | {"hidden_size": 10**40}, "hidden_size"),
        ({"model_type": "gpt2", "add_cross_attention": True} | GPT2, "cross attention"),
        ({"model_type": "qwen2", "num_experts": 60} | LLAMA, "num_experts: experts are not described"),
        ({"model_type": "qwen2", "n_routed_experts": 8} | LLAMA, "n_routed_experts: experts"),
        ({"model_type": "llama", "num_local_experts": [8]} | LLAMA, "num_local_experts: experts"),
        ({"model_type": "gpt2"} | GPT2 | {"n_layer": 0}, "^n_layer: must be greater"),
        (7, "must be a configuration or a dictionary"),
    ],
)
def test_what_is_refused(config: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shape_from_config(config)


def test_one_expert_is_a_dense_model() -> None:
    config = {"model_type": "llama", "num_local_experts": 1, "num_experts": None} | LLAMA
    assert shape_from_config(config) == shape_from_config({"model_type": "llama"} | LLAMA)


def test_quantization_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    shape_from_config({"model_type": "llama", "quantization_config": {"bits": 4}} | LLAMA)
    assert "quantization_config is ignored" in caplog.text


def test_errors_name_the_file_and_its_own_key(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama"} | LLAMA | {"num_hidden_layers": -1}))
    with pytest.raises(InputError) as caught:
        shape_from_config_file(file)
    assert caught.value.field == f"model: {file}: num_hidden_layers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot read the file"),
        ("[]", "must hold a JSON object"),
        ("{}", "not a Hugging Face configuration"),
        ("[" * 200_000, "cannot read the file"),
        (json.dumps({"model_type": "llama"}), "num_hidden_layers"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        shape_from_config_file(file)


def test_missing_and_oversized_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        shape_from_config_file(tmp_path / "config.json")
    file = tmp_path / "big.json"
    with file.open("wb") as stream:
        stream.truncate(17 * 2**20)
    with pytest.raises(InputError, match="too large"):
        shape_from_config_file(file)


def test_every_type_is_tested() -> None:
    assert {case for case, _ in CASES} | {"internlm"} == set(MODEL_TYPES)
