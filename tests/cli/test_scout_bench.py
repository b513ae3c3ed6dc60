"""`dtk scout bench kernel` on tiny shapes: the JSON contract, the tables, --out, Ctrl-C, and bad input."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from dtk.cli import scout_bench_kernel
from dtk.cli.main import run
from dtk.hardware import measure
from dtk.scout.bench import kernel
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.contender import Contender
from tests.cli.terminal import plain, run_dtk

TINY = [
    *("--batch", "2", "--kv-heads", "2", "--head-dim", "16", "--block-size", "16"),
    *("--selected-tokens", "40", "--context-tokens", "100"),
    *("--repeats", "3", "--time-budget", "60s"),
]
# What scripts rely on.
ROW_NAMES = {
    *("dtype", "group_size", "threads", "read_bandwidth_bytes_per_s", "roofline_bytes_per_s"),
    *("kv_bandwidth_bytes_per_s", "fraction_of_roofline", "torch_best_bytes_per_s", "speedup_over_torch"),
}


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_MATRIX_SIZE", 16)
    monkeypatch.setattr(measure, "_MULTIPLY_ADDS", 1)
    monkeypatch.setattr(measure, "_USUAL_CACHE_BYTES", 2**14)
    monkeypatch.setattr(measure, "last_level_cache_bytes", lambda: 2**14)


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["scout", "bench", "kernel", *TINY, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.native
def test_json_has_the_names_that_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bench(capsys, "--json", "--threads", "1", "--group-sizes", "2,1")
    document = json.loads(out)
    assert code == 0
    assert (document["command"], document["status"], document["basis"]) == (
        "scout bench kernel",
        "ok",
        "measured",
    )
    rows: list[dict[str, Any]] = document["data"]["rows"]
    assert [(row["dtype"], row["group_size"]) for row in rows] == [
        (dtype, group_size) for dtype in ("fp32", "fp16", "bf16") for group_size in (2, 1)
    ]
    for row in rows:
        assert row.keys() >= ROW_NAMES
        assert (row["threads"], row["basis"]) == (1, "measured")
        assert row["fraction_of_roofline"] == pytest.approx(
            row["kv_bandwidth_bytes_per_s"] / row["roofline_bytes_per_s"]
        )
        assert row["speedup_over_torch"] == pytest.approx(
            row["kv_bandwidth_bytes_per_s"] / row["torch_best_bytes_per_s"]
        )
        assert row["kv_bytes"] == 2 * 2 * 2 * 40 * 16 * (4 if row["dtype"] == "fp32" else 2)
    assert document["data"]["config"]["time_budget_s"] == "60s"
    assert isinstance(document["data"]["llama_cpp"], str)


@pytest.mark.native
def test_the_table_shows_every_row_and_the_scaling(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = bench(
        capsys, "--dtypes", "bf16", "--scaling", "--scaling-tokens", "300", "--threads", "1"
    )
    assert code == 0
    assert "timing bf16, group size 4" in err
    text = plain(out)
    # Each row against the limits and against the others, and the scaling.
    assert text.count("bf16") == 5
    assert "slope of log time over log selected tokens" in text
    assert "largest over smallest time across the contexts" in text


@pytest.mark.native
def test_out_keeps_results_plots_and_the_resolved_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "folder"
    arguments = ("--dtypes", "fp32", "--scaling", "--scaling-tokens", "300", "--threads", "1", "--seed", "7")
    code, out, _ = bench(capsys, *arguments, "--out", str(folder), "--json")
    assert code == 0
    plots = {f"{name}.{kind}" for name in ("roofline", "scaling") for kind in ("png", "svg")}
    assert {path.name for path in folder.iterdir()} == plots | {"result.json", "request.json", "config.yaml"}
    assert json.loads((folder / "result.json").read_text()) == json.loads(out)["data"]
    request = json.loads((folder / "request.json").read_text())
    assert (request["threads"], request["seed"]) == (1, 7)
    assert request["environment"]["torch"]["version"] == str(torch.__version__)
    settings = KernelBenchConfig(**yaml.safe_load((folder / "config.yaml").read_text()))
    assert (settings.batch, settings.dtypes, settings.scaling) == (2, ("fp32",), True)

    code, _, err = bench(capsys, "--out", str(folder))
    assert code == 2
    assert "--out: holds the results of an earlier run" in err


def _interrupt() -> None:
    raise KeyboardInterrupt


def _fail() -> None:
    raise ZeroDivisionError("none left")


@pytest.mark.native
@pytest.mark.parametrize(
    ("problem", "code", "status", "message"),
    [
        (_interrupt, 130, "interrupted", "interrupted while writing to"),
        (_fail, 70, "failed", "ZeroDivisionError: none left"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_trouble_while_saving_costs_no_figure(
    problem: Callable[[], None],
    code: int,
    status: str,
    message: str,
    as_json: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(scout_bench_kernel, "capture_environment", problem)
    arguments = ("--dtypes", "fp16", "--group-sizes", "3", "--repeats", "1", "--out", str(tmp_path))
    ended, out, err = bench(capsys, *arguments, *(("--json",) if as_json else ()))
    assert ended == code
    assert f"dtk: {message}" in err or message in err
    kept = json.loads((tmp_path / "result.json").read_text())
    assert [row["dtype"] for row in kept["rows"]] == ["fp16"]
    if as_json:
        document = json.loads(out)
        assert (document["status"], document["data"]) == (status, kept)
        assert any(message in warning for warning in document["warnings"])
    else:
        assert "fp16" in out


@pytest.mark.native
@pytest.mark.parametrize(("given", "recorded"), [("PASSIVE", "passive"), ("active", "active"), (None, None)])
def test_the_wait_policy_is_recorded(
    given: str | None,
    recorded: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    # Torch is loaded here already, so that the command cannot change the policy any more.
    _, out, _ = bench(capsys, "--json", "--dtypes", "fp32", "--group-sizes", "1", "--repeats", "1")
    assert json.loads(out)["data"]["omp_wait_policy"] == recorded


def test_a_file_in_place_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    code, _, err = bench(capsys, "--out", str(file))
    assert (code, err) == (
        2,
        f"dtk: --out: cannot write there: it is a file, not a folder (got '{file}'); name a new folder\n",
    )


def test_out_is_checked_before_torch_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    script = "import sys; from dtk.cli.main import run; print(run(sys.argv[1:]), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, "scout", "bench", "kernel", "--out", str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2 False\n"


def test_help_breaks_no_sentence() -> None:
    text = run_dtk("scout", "bench", "kernel", "--help").stdout
    assert "Ctrl-C ends the rounds early; what was measured is still reported." in text


@pytest.mark.native
def test_a_wrong_kernel_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = kernel.our_contenders
    monkeypatch.setattr(
        kernel,
        "our_contenders",
        lambda *a: [
            Contender(one.name, lambda one=one: one.run() * 1.01, one.tolerance) for one in right(*a)
        ],
    )
    code, out, err = bench(capsys, "--json", "--dtypes", "fp32", "--group-sizes", "3")
    document = json.loads(out)
    assert (code, document["status"], document["data"]["rows"]) == (1, "failed", [])
    assert document["data"]["wrong"][0].startswith("dtk, fp32, group size 3: relative error 1.0")
    # A line of its own, whole: scripts read it.
    line = next(line for line in err.splitlines() if "wrong answer, not timed: dtk" in line)
    assert line.startswith("WARNING ")
    assert line.endswith(", above 1e-04")


@pytest.mark.native
def test_ctrl_c_reports_what_was_measured() -> None:
    command = [sys.executable, "-m", "dtk", "scout", "bench", "kernel", *TINY, "--dtypes", "fp32", "--json"]
    process = subprocess.Popen(
        [*command, "--repeats", "100000", "--time-budget", "100h"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "timing fp32" not in (line := process.stderr.readline()):
        assert line, "ended before the first row"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["status"] == "interrupted"
    assert len(document["data"]["rows"]) <= 1


@pytest.mark.native
def test_more_threads_than_cores_are_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = bench(
        capsys, "--json", "--dtypes", "fp32", "--group-sizes", "1", "--repeats", "1", "--threads", "300"
    )
    assert code == 0
    assert "300 threads share" in json.loads(out)["warnings"][0]


@pytest.mark.native
def test_a_busy_machine_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel.OtherLoad, "cores", lambda _: 1.25)
    arguments = ("--json", "--dtypes", "fp32", "--group-sizes", "1", "--repeats", "1", "--threads", "1")
    code, out, _ = bench(capsys, *arguments)
    document = json.loads(out)
    assert (code, document["data"]["rows"][0]["other_busy_cores"]) == (0, 1.25)
    assert "kept up to 1.2 cores busy" in document["warnings"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--group-sizes", "1,17"), "dtk: --group-sizes: must be less than or equal to 16 (got '17'); give"),
        (("--group-sizes", ""), "dtk: --group-sizes: must be a valid integer"),
        (("--group-sizes", "1,,2"), "give numbers from 1 to 16 with commas between them, such as 1,4"),
        (("--set", "group_sizes=[1, 17]"), "dtk: group_sizes.1: must be less than or equal to 16 (got 17)"),
        (("--dtypes", "fp64"), "--dtypes: must be 'fp32', 'fp16' or 'bf16' (got 'fp64')"),
        (("--time-budget", "5"), "--time-budget: needs a unit (got '5')"),
        (("--selected-tokens", "101"), "selected_tokens=101 is more than context_tokens=100"),
        (("--batch", "0"), "batch: must be greater than or equal to 1 (got 0)"),
        (("--context-tokens", str(10**15)), "the benchmark needs about"),
        (("--set", "nothing=1"), "nothing: unknown key"),
        (("--threads", "0"), "--threads"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = bench(capsys, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.native
def test_an_unknown_instruction_set_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTK_CPU_ISA", "nonsense")
    done = run_dtk("scout", "bench", "kernel", *TINY)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("dtk: DTK_CPU_ISA is 'nonsense'; this build on this CPU has generic")
    assert done.stderr.count("\n") == 1


def test_without_the_compiled_kernels_nothing_is_testable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel.status, "instruction_set", lambda: None)
    code, out, _ = bench(capsys, "--json")
    assert code == 3
    assert "compiled kernels are missing" in json.loads(out)["error"]["message"]
