"""Models named by a hub id: from the local hub cache, from a hub, and the one line when there is none."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

import huggingface_hub.constants
import pytest

from dtk.errors import RunFailedError
from dtk.models import get, hub, load, path
from tests.models import fake_hub


@pytest.fixture
def tiny_folder(cache_folder):
    return get("tiny-qwen3")


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty hub cache."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    return folder


def _put_into_cache(hub_cache, tiny_folder):
    repository = hub_cache / "models--someone--tiny"
    snapshot = repository / "snapshots" / ("a" * 40)
    shutil.copytree(tiny_folder, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    return snapshot


def test_cached_snapshot_is_loaded_without_the_network(hub_cache, tiny_folder, capfd):
    snapshot = _put_into_cache(hub_cache, tiny_folder)
    said = []
    loaded = load("someone/tiny", say=said.append)
    assert loaded.source == snapshot
    assert (loaded.name, loaded.context_length) == ("someone/tiny", 4096)
    assert said == []
    assert capfd.readouterr() == ("", "")


def test_half_a_snapshot_does_not_count(hub_cache, tiny_folder):
    snapshot = _put_into_cache(hub_cache, tiny_folder)
    shards = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors").rename(snapshot / "model-1.safetensors")
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(shards))
    assert path("someone/tiny") is None
    (snapshot / "model-2.safetensors").touch()
    assert path("someone/tiny") == snapshot
    (snapshot / "config.json").unlink()
    assert path("someone/tiny") is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": []}}', "[" * 200_000]
)
def test_snapshot_with_a_damaged_index_does_not_count(text, hub_cache, tiny_folder):
    snapshot = _put_into_cache(hub_cache, tiny_folder)
    (snapshot / "model.safetensors.index.json").write_text(text)
    assert path("someone/tiny") is None


def test_no_hub_is_one_line_within_seconds(hub_cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert path("someone/tiny") is None
    start = time.monotonic()
    with pytest.raises(RunFailedError, match="not in the local hub cache") as caught:
        get("someone/tiny")
    assert time.monotonic() - start < 10
    line = str(caught.value)
    assert "someone/tiny" in line
    assert "\n" not in line
    assert caught.value.exit_code == 4


def _dtk(*arguments, endpoint, hub_cache):
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HUB_CACHE": str(hub_cache),
        "HF_HUB_OFFLINE": "0",
    }
    command = [sys.executable, "-m", "dtk", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_unreachable_hub_is_one_line_within_seconds(hub_cache):
    start = time.monotonic()
    result = _dtk("models", "get", "someone/tiny", endpoint="http://127.0.0.1:9", hub_cache=hub_cache)
    assert time.monotonic() - start < 20
    assert result.returncode == 4
    told, error = result.stderr.splitlines()
    assert told == "downloading someone/tiny from the Hugging Face hub"
    assert error.startswith(
        "dtk: model: not in the local hub cache, and the Hugging Face hub cannot be reached"
    )
    assert "'someone/tiny'" in error


def test_silent_hub_is_given_up(hub_cache, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(
            huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        monkeypatch.setattr(hub, "_TIMEOUT_S", 0.5)
        start = time.monotonic()
        with pytest.raises(RunFailedError, match="cannot be reached: timed out"):
            get("someone/tiny")
    assert time.monotonic() - start < 20


def test_download_from_a_hub(hub_cache, tiny_folder, tmp_path):
    repository = tmp_path / "repository"
    shutil.copytree(tiny_folder, repository)
    (repository / "pytorch_model.bin").write_bytes(b"pickle")
    (repository / "modeling_evil.py").write_text("raise SystemExit")
    with fake_hub.serve(repository) as endpoint:
        result = _dtk("models", "get", "someone/tiny", endpoint=endpoint, hub_cache=hub_cache)
        assert result.returncode == 0, result.stderr
        assert result.stderr == "downloading someone/tiny from the Hugging Face hub\n"
        missing = _dtk("models", "get", "someone/else", endpoint=endpoint, hub_cache=hub_cache)
    assert missing.returncode == 2, missing.stderr
    assert "no such repository" in missing.stderr
    folder = path("someone/tiny")
    assert str(folder) == result.stdout.strip()
    names = {item.name for item in folder.iterdir()}
    assert "model.safetensors" in names
    assert not {"pytorch_model.bin", "modeling_evil.py"} & names
    assert load("someone/tiny").source == folder


def test_repository_without_safetensors(hub_cache, tiny_folder, tmp_path):
    repository = tmp_path / "repository"
    shutil.copytree(tiny_folder, repository)
    (repository / "model.safetensors").rename(repository / "pytorch_model.bin")
    with fake_hub.serve(repository) as endpoint:
        result = _dtk("models", "get", "someone/tiny", endpoint=endpoint, hub_cache=hub_cache)
    assert result.returncode == 2
    assert "no safetensors" in result.stderr
