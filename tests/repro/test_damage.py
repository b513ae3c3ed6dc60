"""Damaged run folders: one clear line that names the file, or what is good in them is still used."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtk.cli import main
from tests.repro.samples import claim, install, write_paper


@pytest.fixture(autouse=True)
def _sample_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, with a sample claim, and give torch its threads back."""
    import torch

    good = claim("sample.good", "constant", parameters={"value": 1})
    install(write_paper(tmp_path / "claims", good), monkeypatch)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def dtk(*arguments: str) -> int:
    return main.run(["repro", *arguments])


def _edit_manifest(run_dir: Path, **changes: Any) -> None:
    file = run_dir / "manifest.json"
    document = json.loads(file.read_text())
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = document
        for name in parents:
            part = part[int(name)] if isinstance(part, list) else part[name]
        part[last] = value
    file.write_text(json.dumps(document))


@pytest.mark.parametrize("command", [["report"], ["run", "--resume"]])
@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"schema": "other/1"}, "schema"),
        ({"invocations": []}, "invocations"),
        ({"config__threads": -3}, "config.threads"),
        ({"config__seed": 2**64}, "config.seed"),
        ({"config__claims": []}, "config.claims"),
        ({"invocations__0__environment__cpu": "x86"}, "cpu"),
        ({"invocations__0__environment__cpu": {"flags": [1]}}, "cpu.flags.0"),
        ({"invocations__0__environment__torch": {"gpus": 3}}, "torch.gpus"),
        ({"invocations__0__environment__git": "abc"}, "git"),
        ({"invocations__0__environment__git": {}}, "git.commit"),
        ({"invocations__0__environment__memory_bytes": "much"}, "memory_bytes"),
        ({"invocations__0__environment__packages": ["torch"]}, "packages"),
        ({"invocations__0__environment__variables": 0}, "variables"),
        ({"invocations__0__environment": []}, "environment"),
    ],
)
def test_a_damaged_manifest_is_one_line_that_names_file_and_place(
    capsys: pytest.CaptureFixture[str], command: list[str], changes: dict[str, Any], part: str
) -> None:
    assert dtk("run", "sample.good", "--threads", "1", "--quiet") == 0
    run_dir = next(Path("runs").iterdir())
    _edit_manifest(run_dir, **changes)
    capsys.readouterr()
    assert dtk(*command, str(run_dir)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"{run_dir / 'manifest.json'} is damaged: " in err
    assert part in err
    assert ": :" not in err
    assert "start a fresh run" in err


@pytest.mark.parametrize(
    ("name", "kind", "codes"),
    [
        ("results.jsonl", "folder", {"report": 2, "run": 2}),
        ("results.jsonl", "pipe", {"report": 2, "run": 2}),
        (".lock", "folder", {"report": 0, "run": 4}),
        ("plots", "file", {"report": 4, "run": 4}),
        ("report.html", "folder", {"report": 4, "run": 4}),
        ("manifest.json", "folder", {"report": 2, "run": 2}),
        ("manifest.json", "pipe", {"report": 2, "run": 2}),
    ],
)
def test_a_wrong_kind_of_file_in_a_run_is_named(
    capsys: pytest.CaptureFixture[str], name: str, kind: str, codes: dict[str, int]
) -> None:
    write_paper(Path("../claims"), claim("sample.plots", "hostile"))
    assert dtk("run", "--threads", "1", "--quiet") == 0
    run_dir = next(Path("runs").iterdir())
    place = run_dir / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    {"folder": place.mkdir, "pipe": lambda: os.mkfifo(place), "file": place.touch}[kind]()
    for command, words in (("report", ["report"]), ("run", ["run", "--quiet", "--resume"])):
        capsys.readouterr()
        assert dtk(*words, str(run_dir)) == codes[command], command
        err = capsys.readouterr().err
        assert err.count("\n") == (codes[command] > 0)
        assert codes[command] == 0 or str(run_dir if name == "manifest.json" else place) in err


def test_damaged_lines_run_again_and_the_good_ones_stay(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    names = ["a", "b", "c"]
    write_paper(
        tmp_path / "claims",
        *[claim(f"sample.{name}", "constant", parameters={"value": 1, "log": str(log)}) for name in names],
    )
    assert dtk("run", "--threads", "1", "--quiet") == 0
    file = next(Path("runs").glob("*/results.jsonl"))
    first, second, third = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([first, second[:40] + b"\xff", b"", third, b"null", b""]))
    capsys.readouterr()
    assert dtk("report", "latest", "--json") == 0
    assert [("3 damaged lines" in line) for line in json.loads(capsys.readouterr().out)["warnings"]] == [True]

    assert dtk("run", "--resume", "latest") == 0
    printed = capsys.readouterr()
    assert " ".join(printed.err.split()).count("3 damaged lines skipped (the first is line 2)") == 1
    assert "2 claims done before" in printed.err
    assert "3 of 3 testable claims pass" in printed.out
    assert log.read_text().count("constant") == 4
