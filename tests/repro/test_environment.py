"""The captured environment against what the system's own tools say."""

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from dtk.repro import environment
from dtk.repro.environment import (
    available_threads,
    capture_environment,
    environment_differences,
    hash_sources,
)


def test_it_names_machine_and_versions() -> None:
    captured = capture_environment()
    json.dumps(captured, allow_nan=False)
    assert captured["python"] == platform.python_version()
    assert captured["kernel"].endswith(os.uname().release)
    assert captured["packages"]["torch"] == torch.__version__
    assert captured["torch"]["threads"] == torch.get_num_threads()
    assert captured["cpu"]["available_cores"] == available_threads() == len(os.sched_getaffinity(0))
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    assert captured["cpu"]["model"] in flags
    assert all(f" {flag}" in flags for flag in captured["cpu"]["flags"])
    assert platform.node() not in json.dumps(captured)


def test_it_keeps_thread_and_own_variables_but_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("DTK_CPU_ISA", "generic")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("DTK_HUB_TOKEN", "hunter2")
    monkeypatch.setenv("DTK_KEY", "hunter2")
    monkeypatch.setenv("DTK_KEYS_PER_BLOCK", "4")
    monkeypatch.setenv("AWS_SECRET", "hunter2")
    variables = capture_environment()["variables"]
    wanted = {
        "OMP_NUM_THREADS": "3",
        "DTK_CPU_ISA": "generic",
        "TRITON_INTERPRET": "1",
        "DTK_HUB_TOKEN": "(not kept)",
        "DTK_KEY": "(not kept)",
        "DTK_KEYS_PER_BLOCK": "4",
    }
    assert variables.items() >= wanted.items()
    assert "AWS_SECRET" not in variables


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_git_state_is_that_of_dtks_own_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "packages" / "dtk"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    monkeypatch.setattr(environment, "package_folder", lambda name: package)
    assert environment._git_state() == {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False}
    (package / "new.py").touch()
    assert environment._git_state() == {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": True}


def test_a_project_that_merely_contains_dtk_is_not_its_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / ".venv" / "site-packages" / "dtk"
    package.mkdir(parents=True)
    git(tmp_path, "init")
    monkeypatch.setattr(environment, "package_folder", lambda name: package)
    assert environment._git_state() is None


def test_the_source_hash_sees_content_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "dtk"
    package.mkdir()
    (package / "__init__.py").write_text("a = 1\n")
    monkeypatch.setattr(environment, "package_folder", lambda name: package)
    hashes = [hash_sources(), hash_sources()]
    assert hashes[0] == hashes[1]
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.py").touch()
    (package / "note.txt").touch()
    assert hash_sources() == hashes[0]
    (package / "__init__.py").write_text("a = 2\n")
    hashes.append(hash_sources())
    (package / "__init__.py").rename(package / "other.py")
    hashes.append(hash_sources())
    assert len(set(hashes)) == 3


@pytest.mark.parametrize(
    ("reference", "here", "differs"),
    [
        ("3.11", "3.11.7", False),
        ("3.1", "3.11.7", True),
        ("2.13", "2.13.0+cpu", False),
        ("2.13.0", "2.13.0+cpu", False),
        ("3.12", "3.11.7", True),
    ],
)
def test_versions_match_by_their_parts(reference: str, here: str, differs: bool) -> None:
    differences = environment_differences({"python": reference}, {"python": here})
    assert differences == ([("python", reference, here)] if differs else [])


def test_differences_cover_instruction_set_and_cores() -> None:
    here = {"cpu": {"available_cores": 8}, "torch": {"version": "2.13.0", "cpu_capability": "AVX512"}}
    reference = {"torch": "2.13", "instruction set": "AVX2", "cores": "2"}
    assert environment_differences(reference, here) == [
        ("instruction set", "AVX2", "AVX512"),
        ("cores", "2", "8"),
    ]
