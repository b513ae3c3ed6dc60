"""`dtk repro` as scripts and people use it: JSON, table, exit codes, resume, kills and interrupts."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from dtk.cli import main
from tests.cli.terminal import TERMINALS, plain
from tests.repro.samples import claim, install, write_paper

DRIVER = Path(__file__).parents[1] / "repro" / "driver.py"
GOOD = claim("sample.good", "constant", parameters={"value": 1})
OFF = claim("sample.off", "constant", parameters={"value": 2}, quick=False)
AWAY = claim("sample.away", None, untestable="needs another machine", quick=False)
LOST = claim("sample.lost", "lost_download")
HEAVY = ("torch", "ray", "triton", "transformers", "scipy", "matplotlib")


@pytest.fixture(autouse=True)
def _sample_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, with sample claims, and give torch its threads back."""
    import torch

    install(write_paper(tmp_path / "claims", GOOD, OFF, AWAY, LOST), monkeypatch)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def dtk(*arguments: str) -> int:
    return main.run(["repro", *arguments])


def read(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON")
    )
    return document


def test_json_has_the_names_that_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert dtk("run", "sample.good", "sample.off", "sample.away", "--json", "--threads", "1") == 1
    document = read(capsys)
    assert (document["command"], document["status"]) == ("repro run", "failed")
    data = document["data"]
    rows = [
        {key: row[key] for key in ("id", "status", "basis", "expected", "observed")} for row in data["claims"]
    ]
    assert rows == [
        {"id": "sample.good", "status": "pass", "basis": "analytic", "expected": 1, "observed": 1},
        {"id": "sample.off", "status": "fail", "basis": "analytic", "expected": 1, "observed": 2},
        {
            "id": "sample.away",
            "status": "not-testable",
            "basis": "published",
            "expected": 1,
            "observed": None,
        },
    ]
    keys = {"paper_value", "band", "tolerance", "seconds", "details", "reason"}
    assert all(keys <= row.keys() for row in data["claims"])
    assert data["counts"] == {"pass": 1, "fail": 1, "not-testable": 1}
    run_dir = Path(data["run_dir"])
    assert Path(data["report"]) == run_dir / "report.html"
    assert {path.name for path in run_dir.iterdir()} >= {"manifest.json", "results.jsonl", "report.html"}
    assert len((run_dir / "results.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        (["sample.good", "sample.away"], 0),
        (["sample.off", "sample.good"], 1),
        (["sample.away"], 3),
        (["sample"], 4),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], claims: list[str], code: int) -> None:
    assert dtk("run", *claims, "--threads", "1", "--json") == code
    document = read(capsys)
    assert document["status"] == {0: "ok", 1: "failed", 3: "error", 4: "error"}[code]
    assert ("error" in document) == (code > 1)
    if code == 4:
        assert len(document["data"]["claims"]) == 4
        assert "the download broke off" in document["error"]["message"]
        assert "--resume" in document["error"]["hint"]


def test_the_table_has_one_line_a_claim_and_the_report_lies_in_the_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dtk("run", "--threads", "1", "sample.good", "sample.off", "sample.away") == 1
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["claim", "sample.good", "sample.off", "sample.away"]
    assert lines[1].split() == ["sample.good", "1", "1", "1", "equal", "pass", "analytic", "0.0", "s"]
    assert lines[4] == "fail: sample.off: observed 2 is above the band, which ends at 1"
    assert lines[5] == "not-testable: sample.away: needs another machine"
    assert lines[6] == "1 of 2 testable claims pass, 1 fails; 1 not testable here"
    assert "report: report.html" in printed.err
    assert Path("report.html").read_text() == next(Path("runs").glob("*/report.html")).read_text()


def test_out_takes_everything_and_leaves_the_current_folder_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert (
        dtk("run", "sample.good", "--threads", "1", "--out", str(tmp_path / "deep" / "out"), "--quiet") == 0
    )
    assert capsys.readouterr().err == ""
    assert list(Path.cwd().iterdir()) == []
    assert len(list((tmp_path / "deep" / "out").glob("*/report.html"))) == 1


def test_a_foreign_report_stays(capsys: pytest.CaptureFixture[str]) -> None:
    Path("report.html").write_text("mine")
    assert dtk("run", "sample.good", "--threads", "1") == 0
    assert Path("report.html").read_text() == "mine"
    assert "stays as it is" in capsys.readouterr().err


def _block_copy(kind: str) -> None:
    Path("report.html").mkdir() if kind == "folder" else os.mkfifo("report.html")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_report_that_cannot_be_copied_costs_no_results(
    capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    _block_copy(kind)
    assert dtk("run", "sample.good", "--threads", "1", "--quiet") == 4
    printed = capsys.readouterr()
    run_dir = next(Path("runs").iterdir())
    assert "1 of 1 testable claims pass" in printed.out
    assert printed.err.count("\n") == 1
    assert "cannot write report.html" in printed.err
    assert "all claims have results" in printed.err
    assert f"dtk repro run --resume {run_dir}" in printed.err
    assert (run_dir / "report.html").is_file()

    assert dtk("run", "--resume", "latest", "--json") == 4
    document = read(capsys)
    assert [row["status"] for row in document["data"]["claims"]] == ["pass"]
    assert "report.html" in document["error"]["message"]
    Path("report.html").rmdir() if kind == "folder" else Path("report.html").unlink()
    assert dtk("run", "--resume", "latest", "--quiet") == 0


@pytest.mark.parametrize("name", ["report.html", "plots", "results.jsonl"])
def test_a_full_disk_costs_no_results(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Writing stops working at the named file of the run's folder; the first claim has its result by then."""
    fsync = os.fsync
    synced: list[str] = []

    def full(descriptor: int) -> None:
        file = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(file.name)
        if name in str(file) and (name != "results.jsonl" or synced.count(name) > 1):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    write_paper(Path("../claims"), GOOD, claim("sample.plots", "hostile"))
    assert dtk("run", "--threads", "1", "--json") == 4
    document = read(capsys)
    rows = {row["id"]: row["status"] for row in document["data"]["claims"]}
    assert rows["sample.good"] == "pass"
    assert name in document["error"]["message"]
    assert "No space left" in document["error"]["message"]
    assert f"--resume {document['data']['run_dir']}" in document["error"]["hint"]


def test_seed_and_threads_reach_the_check_and_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert dtk("run", "sample.good", "--seed", "7", "--threads", "1", "--json") == 0
    data = read(capsys)["data"]
    assert data["claims"][0]["details"] == {"seed": 7, "threads": 1}
    manifest = json.loads((Path(data["run_dir"]) / "manifest.json").read_text())
    assert (manifest["config"]["seed"], manifest["config"]["threads"]) == (7, 1)
    invocation = manifest["invocations"][0]
    assert invocation["environment"]["torch"]["threads"] == 1
    assert invocation["argv"]
    assert manifest["config"]["claims"][0]["id"] == "sample.good"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "sample.god"], ["sample.god", "did you mean sample.good"]),
        (["list", "nonsense"], ["nonsense", "dtk repro list"]),
        (["run", "--resume", "latest"], ["--out", "there is no run"]),
        (["run", "--resume", "nowhere"], ["nowhere", "not the folder of a run"]),
        (["run", "--threads", "0"], ["--threads", "1"]),
        (["run", "--threads", "99999999999"], ["--threads", "4096"]),
        (["run", "--seed", "-1"], ["--seed", "0"]),
        (["run", "--seed", str(2**63)], ["--seed", str(2**63 - 1)]),
        (["run", "sample.off", "--quick"], ["--quick"]),
        (["report", "nowhere"], ["nowhere", "not the folder of a run"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    assert dtk(*arguments, "--json") == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert all(part in printed.err for part in parts)
    assert json.loads(printed.out)["status"] == "error"
    assert not list(Path.cwd().iterdir())


def test_the_largest_seed_and_number_of_threads_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert dtk("run", "sample.good", "--seed", str(2**63 - 1), "--threads", "4096", "--json") == 0
    assert read(capsys)["data"]["claims"][0]["details"] == {"seed": 2**63 - 1, "threads": 4096}


@pytest.mark.parametrize("words", [["run", "sample.good"], ["report", "latest"]])
def test_a_deleted_current_folder_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert dtk(*words) == 2
    assert capsys.readouterr().err.startswith("dtk: the current folder is gone")


def test_resume_refuses_to_become_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert dtk("run", "sample.good", "--threads", "1", "--quiet") == 0
    for words, field in (
        (["--seed", "1"], "--seed"),
        (["--threads", "2"], "--threads"),
        (["sample.off"], "CLAIM"),
        (["--quick"], "CLAIM"),
    ):
        capsys.readouterr()
        assert dtk("run", "--resume", "latest", *words) == 2
        assert field in capsys.readouterr().err
    assert dtk("run", "--resume", "latest", "sample.good", "--seed", "0", "--threads", "1", "--json") == 0
    printed = capsys.readouterr()
    assert "1 claim done before" in printed.err
    assert len(json.loads(printed.out)["data"]["claims"]) == 1


def test_the_report_can_be_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert dtk("run", "sample.good", "--threads", "1", "--json") == 0
    made = Path(read(capsys)["data"]["report"])
    text = made.read_text()
    made.unlink()
    assert dtk("report", "latest", "--json") == 0
    assert read(capsys)["data"] == {"report": str(made)}
    assert made.read_text() == text
    assert dtk("report", str(made.parent)) == 0
    assert capsys.readouterr().out == f"{made}\n"


def test_list_shows_what_a_claim_costs_and_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert dtk("list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["claim", "where", "title"]
    assert " ".join(lines[1].split()) == (
        "sample.good table 1 title of sample.good 1 exact measured yes 0.01 1 MiB"
    )
    assert lines[3].endswith("a check")
    assert dtk("list", "sample.good", "--json") == 0
    rows = read(capsys)["data"]["claims"]
    assert [(row["id"], row["paper"], row["minutes"], row["quick"]) for row in rows] == [
        ("sample.good", "sample", 0.01, True)
    ]


# From here on in processes of their own.


def start(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdout: IO[str] | int = subprocess.PIPE,
    stderr: IO[str] | int = subprocess.PIPE,
) -> "subprocess.Popen[str]":
    paths = os.pathsep.join([str(Path(path).resolve()) for path in sys.path if path])
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(Path("../claims").resolve()), "repro", *arguments],
        env=os.environ | {"PYTHONPATH": paths} | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def write_waiting_claims(tmp_path: Path) -> tuple[Path, Path]:
    """Write claims a, b, wait, c; return the log of what ran, and the file that lets `wait` go on."""
    log, release = tmp_path / "log", tmp_path / "release"
    constants = [
        claim(f"sample.{name}", "constant", parameters={"value": 1, "log": str(log)}) for name in "abc"
    ]
    wait = claim("sample.wait", "wait", parameters={"log": str(log), "release": str(release)})
    write_paper(tmp_path / "claims", *constants[:2], wait, constants[2])
    return log, release


def wait_for(log: Path, word: str, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    while not (log.exists() and word in log.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_run_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    log, release = write_waiting_claims(tmp_path)
    process = start("run", "--threads", "1")
    wait_for(log, "wait", process)
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    run_dir = next(Path("runs").iterdir())
    assert len((run_dir / "results.jsonl").read_text().splitlines()) == 2

    release.touch()
    code, out, err = finish(start("run", "--resume", "latest", "--json"))
    assert code == 0, err
    data = json.loads(out)["data"]
    assert [row["id"] for row in data["claims"]] == ["sample.a", "sample.b", "sample.wait", "sample.c"]
    assert Path(data["run_dir"]) == run_dir
    assert log.read_text().split("\n") == ["constant 1", "constant 1", "wait", "wait", "constant 1", ""]
    assert len(json.loads((run_dir / "manifest.json").read_text())["invocations"]) == 2


def test_ctrl_c_keeps_what_is_done_and_exits_130(tmp_path: Path) -> None:
    log, release = write_waiting_claims(tmp_path)
    process = start("run", "--threads", "1", "--json")
    wait_for(log, "wait", process)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130, err
    document = json.loads(out)
    assert [row["id"] for row in document["data"]["claims"]] == ["sample.a", "sample.b"]
    assert document["status"] == "error"
    assert document["error"]["hint"] == f"go on with: dtk repro run --resume {document['data']['run_dir']}"
    assert "2</b>not run yet" in Path(document["data"]["report"]).read_text()

    release.touch()
    code, out, _ = finish(start("run", "--resume", document["data"]["run_dir"]))
    assert code == 0
    assert plain(out).endswith("4 of 4 testable claims pass")


@pytest.mark.parametrize("pause_seconds", [0.001, 0.02, 0.3])
def test_a_hail_of_ctrl_c_leaves_the_message(tmp_path: Path, pause_seconds: float) -> None:
    log, _ = write_waiting_claims(tmp_path)
    with Path("err").open("w") as err, Path("out").open("w") as out:
        process = start("run", "--threads", "1", "--json", stdout=out, stderr=err)
        wait_for(log, "wait", process)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(pause_seconds)
    run_dir = next(Path("runs").iterdir())
    document = json.loads(Path("out").read_text())
    assert [row["id"] for row in document["data"]["claims"]] == ["sample.a", "sample.b"]
    assert f"go on with: dtk repro run --resume {run_dir}\n" in Path("err").read_text()
    assert process.returncode == 130
    assert (run_dir / "report.html").is_file()


def test_a_second_process_cannot_join_a_run(tmp_path: Path) -> None:
    log, release = write_waiting_claims(tmp_path)
    first = start("run", "--threads", "1")
    wait_for(log, "wait", first)
    code, _, err = finish(start("run", "--resume", "latest"))
    release.touch()
    assert (code, err.count("\n")) == (2, 1)
    assert "another process" in err
    manifest = json.loads(next(Path("runs").glob("*/manifest.json")).read_text())
    assert len(manifest["invocations"]) == 1
    assert finish(first)[0] == 0


@pytest.mark.parametrize("terminal", TERMINALS)
def test_people_read_the_same_in_every_terminal(terminal: str) -> None:
    process = start("run", "sample.good", "sample.away", "--threads", "1", environment=TERMINALS[terminal])
    code, out, err = finish(process)
    assert code == 0
    text = plain(out)
    assert "not-testable: sample.away: needs another machine" in text
    assert "1 of 1 testable claims pass; 1 not testable here" in text
    assert "report: report.html" in plain(err)


def test_listing_needs_no_heavy_library() -> None:
    code = """if True:
        import sys
        from dtk.cli.main import run
        assert run(["repro", "list", "--json"]) == 0
        loaded = set(sys.argv[1:]) & set(sys.modules)
        sys.exit(f"imported {loaded}" if loaded else 0)
    """
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", code, *HEAVY],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
