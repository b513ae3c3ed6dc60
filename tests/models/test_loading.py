"""Loading from a folder: what is accepted, what is refused, and that nothing foreign ever runs."""

import json
import os
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from dtk.errors import InputError
from dtk.models import get, load, loading, path, tiny_llama


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return get("tiny-llama")


@pytest.fixture
def folder(original, tmp_path):
    """A copy that a test may spoil."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def _edit(file, **changes):
    document = json.loads(file.read_text())
    document.update(changes)
    file.write_text(json.dumps(document))


@pytest.mark.parametrize("form", [str, Path, os.path.relpath])
def test_folder_in_every_form(form, folder):
    loaded = load(form(folder))
    assert loaded.source.samefile(folder)
    assert loaded.name == str(form(folder))
    assert not loaded.model.training
    assert next(loaded.model.parameters()).dtype == torch.float32
    assert loaded.model.config._attn_implementation == "sdpa"
    assert path(form(folder)).samefile(folder)


def test_home_is_expanded(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load("~/model").source.samefile(folder)


def test_registry_name_beats_a_folder_of_that_name(folder, original, monkeypatch):
    monkeypatch.setenv("DTK_CACHE_DIR", str(original.parent.parent))
    monkeypatch.chdir(folder.parent)
    shutil.copytree(folder, "tiny-llama")
    assert get("tiny-llama") == original
    assert get("./tiny-llama").samefile("tiny-llama")


def test_folder_beats_hub_id(folder, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    assert get(f"{folder.parent.name}/model").samefile(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", torch.bfloat16])
def test_dtype_reaches_the_weights(dtype, folder):
    loaded = load(folder, dtype=dtype)
    expected = getattr(torch, str(dtype).removeprefix("torch."))
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {expected}
    weight = tiny_llama().model.layers[0].mlp.up_proj.weight
    assert torch.equal(loaded.model.model.layers[0].mlp.up_proj.weight, weight.to(expected))


@pytest.mark.parametrize(("dtype", "warns"), [("float32", False), ("bfloat16", True)])
def test_emulated_dtype_is_warned_about(dtype, warns, folder, monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "x86_64", "avx2": True})
    load(folder, dtype=dtype)
    assert ("no torch.bfloat16 instructions" in caplog.text) == warns


def test_attention_reaches_the_model(folder):
    assert load(folder, attention="eager").model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2-135m", "unknown model.*'smolm2-135m'.*known: smollm2-135m, tiny-llama"),
        ("", "unknown model"),
        ("./missing", "no such folder.*'./missing'"),
        ("/missing/model", "no such folder.*'/missing/model'"),
        ("a/b/c", "no such folder.*'a/b/c'"),
        (__file__, "is not a folder"),
        ("a" * 5000, "unknown model.*'aaa.*[.]{3}aaa"),
        ("./" + "a" * 5000, "no such folder.*'./aaa.*[.]{3}aaa"),
        ("org/" + "a" * 5000, "not a name that the Hugging Face hub allows.*'org/aaa.*[.]{3}aaa"),
        ("org/a--b", "not a name that the Hugging Face hub allows"),
        ("~nouser-of-tests/x", "no such user's home folder"),
        ("a\0b/c", "no such folder"),
    ],
)
def test_bad_name(name, message):
    for function in (load, get, path):
        with pytest.raises(InputError, match=message) as caught:
            function(name)
        assert caught.value.field == "model"
        assert caught.value.exit_code == 2
        assert len(str(caught.value)) < 400


def _remove(name):
    return lambda folder: (folder / name).unlink()


def _pickled(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")


def _custom_code(folder):
    (folder / "evil.py").write_text("raise SystemExit('custom code ran')")
    shutil.move(folder / "config.json", folder / "original.json")
    document = json.loads((folder / "original.json").read_text())
    document.update(model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    (folder / "config.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_remove("config.json"), "has no config.json"),
        (_remove("model.safetensors"), "has no weights"),
        (_pickled, "pickled weights only"),
        (lambda folder: os.truncate(folder / "model.safetensors", 1000), "cannot load the model"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "cannot load the model"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot load the model"),
        (
            lambda folder: _edit(folder / "config.json", model_type="no-such"),
            "cannot load the model.*no-such",
        ),
        (lambda folder: _edit(folder / "config.json", model_type="t5"), "cannot load the model"),
        (lambda folder: _edit(folder / "config.json", hidden_size=32), "cannot load the model"),
        (_remove("tokenizer.json"), "cannot load the model"),
        (_custom_code, "cannot load the model"),
    ],
)
def test_bad_folder(spoil, message, folder, capfd):
    spoil(folder)
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert capfd.readouterr() == ("", "")


def _without(folder, name):
    file = folder / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    del weights[name]
    safetensors.torch.save_file(weights, file, metadata={"format": "pt"})


def test_missing_weights_are_not_made_up(folder):
    _without(folder, "model.layers.1.mlp.up_proj.weight")
    with pytest.raises(
        InputError, match=r"lack weights of the model: model\.layers\.1\.mlp\.up_proj\.weight"
    ):
        load(folder)


def test_surplus_weights_are_warned_about(folder, caplog):
    _edit(folder / "config.json", num_hidden_layers=1)
    load(folder)
    assert "does not use: model.layers.1." in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "--dtype: unknown dtype.*'int8'.*float32, bfloat16, float16"),
        ({"dtype": torch.float64}, "unknown dtype"),
        ({"device": "gpu"}, "--device: unknown device.*'gpu'"),
        ({"device": "cuda:99"}, "--device: no such GPU"),
        ({"device": "meta"}, "--device: unknown device"),
        ({"attention": "no-such"}, "attn_implementation: unknown attention function.*no-such.*known: sdpa"),
    ],
)
def test_bad_option(options, message, folder):
    with pytest.raises(InputError, match=message):
        load(folder, **options)


def test_device_auto_takes_what_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert loading._checked_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert loading._checked_device("auto") == torch.device("cuda")
