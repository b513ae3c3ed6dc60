"""`dtk doctor`: facts that are JSON, checks that can fail, an exit code that says so."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dtk.cli import doctor_facts, main
from dtk.cli.doctor_checks import CHECKS, run_checks
from tests.cli.terminal import TERMINALS, plain, run_dtk

GOOD: dict[str, Any] = {
    "installation": {
        "version": "1.0",
        "installed_version": "1.0",
        "other_distribution": None,
        "folders": ["/x/dtk"],
        "foreign_files": [],
    },
    "environment": {
        "cpu": {"available_cores": 4},
        "torch": {"threads": 4},
        "variables": {"OMP_NUM_THREADS": "4"},
    },
    "kernels": {
        "instruction_set": "avx2",
        "instruction_sets": ["generic", "avx2"],
        "optional_instruction_sets": ["avx512"],
        "operations": {"score": {"native": {"live": True, "reason": ""}}},
    },
    "simulation": {"native": {"live": True, "reason": ""}},
    "memory": {"total_bytes": 2**36, "available_bytes": 2**35, "shared_bytes": 2**34, "shared_free_bytes": 0},
    "gpu": {"cuda_build": None, "available": False, "devices": []},
    "ray": {"version": "2.50"},
    "caches": {
        "dtk": {"path": "/c", "writable": True},
        "triton": {"path": "/t", "writable": True},
    },
    "compiler": {"path": "/usr/bin/c++", "version": "c++ 13"},
}


def test_a_good_machine_has_no_complaint() -> None:
    checks = run_checks(GOOD)
    assert {check.status for check in checks} == {"ok"}
    assert {part for part, _ in CHECKS} == set(GOOD)


@pytest.mark.parametrize(
    ("path", "value", "name", "status", "words"),
    [
        ("installation.other_distribution", "0.3", "package", "fail", "unrelated package 'dtk' 0.3"),
        ("installation.foreign_files", ["/x/dtk/tensor.py"], "package", "fail", "/x/dtk/tensor.py"),
        ("installation.folders", ["/x/dtk", "/y/dtk"], "package", "fail", "not ours"),
        ("installation.installed_version", "0.9", "package", "warn", "dtk 1.0 runs, 0.9 is installed"),
        ("installation.installed_version", None, "package", "ok", "1.0"),
        ("environment.torch.threads", 8, "threads", "warn", "8 threads on 4 cores"),
        ("environment.variables", {"TRITON_INTERPRET": "1"}, "Triton", "warn", "interpreter"),
        ("environment.variables", {"TRITON_CACHE_DIR": "/t"}, "Triton", "ok", "TRITON_CACHE_DIR=/t"),
        ("kernels.instruction_set", "generic", "native kernels", "warn", "generic"),
        (
            "kernels.operations.score.native",
            {"live": False, "reason": "not built"},
            "native kernels",
            "fail",
            "none: not built",
        ),
        (
            "simulation.native",
            {"live": False, "reason": "not built"},
            "native simulator",
            "warn",
            "none: not built",
        ),
        ("memory.available_bytes", 2**30, "memory", "warn", "1.0 GiB free of 64.0 GiB"),
        ("memory.shared_bytes", 2**26, "/dev/shm", "warn", "0.06 GiB"),
        ("gpu.cuda_build", "12.8", "GPU", "warn", "CUDA 12.8 build"),
        ("caches.dtk.writable", False, "cache", "fail", "/c cannot be written"),
        ("caches.triton.writable", False, "cache of triton", "warn", "/t cannot be written"),
        ("compiler", {"path": None, "version": None}, "C++ compiler", "warn", "none found"),
        ("ray", {"error": "ImportError: no ray"}, "ray", "fail", "ImportError: no ray"),
    ],
)
def test_each_complaint(path: str, value: Any, name: str, status: str, words: str) -> None:
    facts = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    part = facts
    for key in parents:
        part = part[key]
    part[last] = value
    [check] = [check for check in run_checks(facts) if check.name == name]
    assert check.status == status
    assert words in check.message
    assert bool(check.hint) == (status != "ok") or "cache of" in name


def test_a_gpu_is_named() -> None:
    facts = copy.deepcopy(GOOD)
    facts["gpu"] = {"cuda_build": "12.8", "available": True, "devices": [{"name": "H200"}]}
    [check] = [check for check in run_checks(facts) if check.name == "GPU"]
    assert (check.status, check.message) == ("ok", "H200")


def test_no_machine_at_all_is_reported_part_by_part() -> None:
    checks = run_checks({part: {"error": "OSError: broken"} for part in GOOD})
    assert [check.status for check in checks] == ["fail"] * len(GOOD)


def test_a_broken_part_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    facts = doctor_facts.collect()
    assert facts["ray"]["error"].startswith("ModuleNotFoundError")
    assert "error" not in facts["environment"]


def test_facts_are_json_and_hold_what_the_checks_read() -> None:
    facts = doctor_facts.collect()
    assert json.loads(json.dumps(facts)) == facts
    for part, example in GOOD.items():
        assert set(example) <= set(facts[part]), facts[part]


def test_foreign_files_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "dtk"
    package.mkdir()
    for name in ("__init__.py", "errors.py", "stranger.py"):
        (package / name).touch()

    class Installed:
        def __init__(self, name: str) -> None:
            self.suffix, self.path = Path(name).suffix, package / name

        def locate(self) -> Path:
            return self.path

    files = [Installed("__init__.py"), Installed("errors.py"), Installed("x.toml")]
    monkeypatch.setattr(doctor_facts.importlib.metadata, "files", lambda name: files)
    assert doctor_facts._foreign_files(package) == [str(package / "stranger.py")]
    assert doctor_facts._foreign_files(tmp_path / "elsewhere") == []


def test_sizes_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_bytes(b"x" * 1000)
    (tmp_path / "two").write_bytes(b"x" * 10)
    assert doctor_facts._size(tmp_path) == 1010
    assert doctor_facts._size(tmp_path / "missing") == 0
    monkeypatch.setattr(doctor_facts, "_SIZE_TIME_LIMIT_S", -1.0)
    assert doctor_facts._size(tmp_path) is None


@pytest.mark.parametrize("terminal", TERMINALS)
def test_the_report_for_people(terminal: str) -> None:
    result = run_dtk("doctor", terminal=terminal)
    text = plain(result.stdout)
    assert result.code == ("fail " in text)
    for word in ("torch", "kernel", "sparse_decode_attention", "cache", "C++ compiler", "Ray"):
        assert word in text


def test_exit_code_and_status_of_a_failed_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DTK_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert main.run(["doctor", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["status"], document["basis"]) == ("doctor", "failed", "measured")
    [check] = [check for check in document["data"]["checks"] if check["name"] == "cache"]
    assert check["status"] == "fail"
    assert str(tmp_path) in check["message"]
