"""`dtk zeropp compare`: the table, the JSON contract, the plot, Ctrl-C, and bad input."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtk.cli.main import run
from dtk.zeropp.config import SCHEDULE_NAMES, ZeroppConfig
from tests.cli.terminal import plain

GOLDEN = Path(__file__).parent / "golden"
SIZES = ("--pp", "4", "--chunks", "2", "--unit", "4", "--micro-batches", "8")


def compare(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["zeropp", "compare", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def data_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = compare(capsys, *arguments, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["command"], document["basis"]) == ("zeropp compare", "simulated")
    data: dict[str, Any] = document["data"]
    return data


@pytest.mark.native
def test_all_schedules_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    data = data_of(capsys, "--schedules", "all", *SIZES, "--effort", "3000000")
    rows = {row["schedule"]: row for row in data["rows"]}
    assert tuple(rows) == SCHEDULE_NAMES
    assert rows["1f1b"]["idle_s_by_rank"] == [18.0] * 4  # 3V(P-1) slots
    assert rows["interleaved"]["idle_s_by_rank"] == [9.0] * 4  # 3(P-1)
    assert rows["zeropp"]["idle_s_by_rank"] == [6.0] * 4  # two units of P-1
    for row in rows.values():
        assert row["gap_to_lower_bound"] == pytest.approx(row["makespan_s"] / data["lower_bound_s"] - 1)
        assert row["times_best"] >= 1
    assert min(row["times_best"] for row in rows.values()) == rows["optimal"]["times_best"] == 1
    assert rows["optimal"]["proven_within_memory"] is True
    assert rows["1f1b"]["proven_within_memory"] is None


def test_golden_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = data_of(capsys, "--schedules", "1f1b,interleaved,zeropp", *SIZES, "--transfer-time", "50ms")
    assert data == json.loads((GOLDEN / "compare.json").read_text())


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = compare(capsys, "--schedules", "1f1b,zeropp,dualpipe-v", *SIZES)
    assert code == 0
    assert err.splitlines() == [f"simulating {name}" for name in ("1f1b", "zeropp", "dualpipe-v")]
    text = plain(out)
    assert "1f1b 1 66 s 27.27% 8 2 2 29.41% 22.22%" in text
    assert "zeropp 2 54 s 11.11% 8 5 4 5.88% 0.00%" in text
    assert "lower bound 51 s (analytic)" in text
    assert "1f1b: takes 2 chunks as one stage, their times summed; holds 2 gathered chunks at once" in text
    assert "dualpipe-v: holds 2 gathered chunks at once" in text


@pytest.mark.native
def test_the_memory_of_the_search_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compare(capsys, "--schedules", "optimal", "--pp", "2", "--effort", "100000")
    assert code == 0
    assert "optimal: within 4 chunk activations a rank, " in out


def test_out_keeps_results_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "results"
    code, out, _ = compare(capsys, "--schedules", "1f1b,zeropp", *SIZES, "--json", "--out", str(folder))
    assert code == 0
    names = {"result.json", "request.json", "config.yaml", "comparison.svg", "comparison.png"}
    assert {path.name for path in folder.iterdir()} == names
    assert json.loads((folder / "result.json").read_text()) == json.loads(out)["data"]
    settings = ZeroppConfig(**yaml.safe_load((folder / "config.yaml").read_text()))
    assert settings.schedules == ("1f1b", "zeropp")
    picture = (folder / "comparison.svg").read_text()
    for words in ("1f1b", "zeropp", "lower bound", "Pipeline schedules, P=4, V=2, M=8 (simulated)"):
        assert words in picture
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again"
    compare(capsys, "--schedules", "1f1b,zeropp", *SIZES, "--out", str(again))
    assert (again / "comparison.svg").read_bytes() == (folder / "comparison.svg").read_bytes()


@pytest.mark.native
def test_ctrl_c_keeps_the_best_so_far() -> None:
    sizes = ("--pp", "6", "--chunks", "2", "--micro-batches", "24", "--memory-chunks", "7")
    times = ("--forward-time", "9ms", "--input-grad-time", "13ms", "--weight-grad-time", "4ms")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "dtk", "zeropp", "compare", "--schedules", "1f1b,optimal"),
            *(*sizes, *times, "--effort", str(10**15), "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "optimal" not in (line := process.stderr.readline()):
        assert line, "ended before the search"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["status"] == "interrupted"
    assert [row["schedule"] for row in document["data"]["rows"]] == ["1f1b", "optimal"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--schedules", "1f1b,nope"), "--schedules: there is no schedule 'nope' (got '1f1b,nope'); all, or"),
        (("--schedules", ""), "--schedules: there is no schedule '' (got '')"),
        (("--schedules", "1f1b,1f1b"), "--schedules: names a schedule twice (got '1f1b,1f1b')"),
        (("--unit", "0"), "--unit: must be greater than or equal to 1"),
        (("--forward-time", "1s,2s"), "--forward-time: has 2 values for 8 stages"),
        (("--forward-time", "-2s"), "--forward-time: must not be negative"),
        (("--memory-chunks", "1"), "--memory-chunks: rank 0 needs 2 for one micro-batch alone"),
        (("--no-split", "--weight-order", "fifo"), "--weight-order: has no effect without the split"),
        (("--group-size", "3"), "--group-size: "),
        (("--pp", str(10**12)), "more than 20000000 actions"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = compare(capsys, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err
