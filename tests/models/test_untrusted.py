"""A model folder from anyone: no code by name, no absurd sizes, and one line whatever the files hold."""

import json
import shutil
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers
from transformers.integrations import hub_kernels

from dtk.errors import InputError, RunFailedError
from dtk.models import get, load, tiny_llama
from dtk.models.cache import MANIFEST


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return get("tiny-llama")


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "model"))


@pytest.fixture
def fetched(monkeypatch):
    """The names of the kernels that transformers asks the hub for; none ever comes."""
    names = []

    def get_kernel(name, **_):
        names.append(name)
        raise RuntimeError("no kernel in tests")

    monkeypatch.setattr(hub_kernels, "get_kernel", get_kernel)
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda *_, **__: True)
    return names


def _edit(folder, **changes):
    document = json.loads((folder / "config.json").read_text())
    document.update(changes)
    (folder / "config.json").write_text(json.dumps(document))


def _refused(folder, match):
    with pytest.raises(InputError, match=match) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 800
    assert str(folder) in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", ["evil/repo", "evil/repo:kernel", "paged|evil/repo", "no-such", "", None])
def test_attention_is_one_of_the_known(name, folder, fetched):
    with pytest.raises(InputError, match=r"unknown attention function.*known: sdpa, eager, flash") as caught:
        load(folder, attention=name)
    assert caught.value.field == "attn_implementation"
    assert fetched == []


@pytest.mark.parametrize(
    "changes",
    [
        {"_attn_implementation": "evil/repo"},
        {"attn_implementation": "evil/repo"},
        {"_attn_implementation_internal": "evil/repo@main:kernel"},
        {"attn_implementation": {"": "evil/repo"}},
        {"attn_implementation": ["evil/repo"]},
        {"text_config": {"_attn_implementation": "evil/repo"}},
        {"parts": [{"inner": {"attn_implementation": "evil/repo"}}]},
        {"_experts_implementation": "evil/repo"},
    ],
)
def test_config_cannot_name_code(changes, folder, fetched):
    _edit(folder, **changes)
    error = _refused(folder, "names code that dtk does not load")
    assert "implementation" in error.field
    assert "evil/repo" in str(error.value)
    assert fetched == []


@pytest.mark.parametrize("key", ["attribute_map", "sub_configs", "configuration_files"])
def test_config_cannot_go_round_the_check(key, folder, fetched):
    (folder / "config.4.0.0.json").write_text('{"model_type": "llama", "_attn_implementation": "evil/repo"}')
    value = ["config.4.0.0.json"] if key == "configuration_files" else {"x": "_attn_implementation"}
    _edit(folder, **{key: value, "x": "evil/repo"})
    _refused(folder, f"may not have {key}")
    assert fetched == []


@pytest.mark.parametrize("key", ["_attn_implementation", "attn_implementation"])
def test_known_attention_of_the_config_is_overruled(key, folder):
    _edit(folder, **{key: "flash_attention_2"})
    assert load(folder).model.config._attn_implementation == "sdpa"


def test_attention_that_needs_a_package(original, monkeypatch):
    monkeypatch.setenv("DTK_CACHE_DIR", str(original.parent.parent))
    with pytest.raises(InputError, match="attn_implementation: cannot be used here"):
        load("tiny-llama", attention="flash_attention_2")


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "3", "{", "", "[" * 200_000, '{"a":' * 200_000])
def test_config_that_is_no_object(text, folder):
    (folder / "config.json").write_text(text)
    _refused(folder, r"cannot load the model: config\.json")


def test_config_that_is_not_text(folder):
    (folder / "config.json").write_bytes(b"\xff\xfe{}")
    _refused(folder, r"config\.json: UnicodeDecodeError")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 1e300},
        {"num_hidden_layers": 0},
        {"hidden_size": 0},
        {"hidden_size": -64},
        {"hidden_size": 10**9},
        {"hidden_size": 10**30},
        {"vocab_size": 10**12},
        {"vocab_size": 0},
        {"intermediate_size": 60_000},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 0},
        {"head_dim": 0},
        {"head_dim": 10**5},
    ],
)
def test_absurd_sizes_are_refused_at_once(changes, folder, capfd):
    _edit(folder, **changes)
    started = time.monotonic()
    _refused(folder, "config.json (has|asks for)")
    assert time.monotonic() - started < 20
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "64"},
        {"hidden_act": "evil"},
        {"rope_parameters": "evil"},
        {"rope_parameters": {"rope_type": "evil"}},
        {"rms_norm_eps": "x"},
        {"num_attention_heads": 3},
        {"num_hidden_layers": None},
        {"layer_types": 5},
        {"eos_token_id": "x"},
        {"model_type": []},
        {"architectures": 3},
        {"dtype": "float13"},
        {"quantization_config": {"quant_method": "evil"}},
        {"quantization_config": []},
        {"max_position_embeddings": None},
        {"max_position_embeddings": True},
        {"max_position_embeddings": -1},
    ],
)
def test_any_config_loads_or_is_refused(changes, folder, capfd):
    """Which of the two is up to transformers; every other exception fails the test."""
    _edit(folder, **changes)
    try:
        load(folder)
    except InputError as error:
        assert str(folder) in str(error)  # noqa: PT017
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        KeyError("evil"),
        ZeroDivisionError(),
        AttributeError("x"),
        AssertionError(),
        RecursionError(),
        TypeError(),
    ],
)
def test_the_kind_of_error_is_said(error, folder, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    _refused(folder, f"the tokenizer's files: {type(error).__name__}")


@pytest.mark.parametrize(
    ("error", "expected"), [(KeyboardInterrupt(), KeyboardInterrupt), (MemoryError(), RunFailedError)]
)
def test_interrupts_and_memory_are_not_the_users_input(error, expected, folder, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(expected):
        load(folder)


def test_shapes_that_do_not_fit_are_named(folder, capfd):
    _edit(folder, intermediate_size=96)
    error = _refused(folder, r"mlp\.\w+_proj\.weight is \[\d+, \d+\] in the files, \[\d+, \d+\] by config")
    assert "above" not in str(error)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["[]", "{}", "{", "[" * 200_000, '{"model": {"type": "BPE"}}'])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_other_files_damaged(name, text, folder):
    (folder / name).write_text(text)
    try:
        load(folder)
    except InputError as error:
        assert str(folder) in str(error)  # noqa: PT017


def test_token_beyond_the_vocabulary(folder):
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["beyond"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(document))
    _refused(folder, "token 'beyond' with id 5000, its model knows 258 tokens")


def test_tokenizer_without_a_fast_form(folder, monkeypatch):
    class Slow:
        pass

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: Slow())
    _refused(folder, "its tokenizer Slow has no fast form.*tokenizer.json")


def test_same_size_damage_in_the_cache_names_the_folder(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DTK_CACHE_DIR", str(tmp_path / "own"))
    cached = get("tiny-llama")
    size = (cached / "config.json").stat().st_size
    (cached / "config.json").write_text("x" * size)
    with pytest.raises(RunFailedError, match=f"delete the folder {cached}") as caught:
        load("tiny-llama")
    assert (caught.value.field, caught.value.value) == ("model", "tiny-llama")
    shutil.rmtree(cached)
    weights = safetensors.torch.load_file(get("tiny-llama") / "model.safetensors")
    assert torch.equal(weights["lm_head.weight"], tiny_llama().lm_head.weight)
    assert (cached / MANIFEST).is_file()
