"""The command line, the report file, and what a machine without a GPU is told."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dtk_kernels.gpu_bench import report
from dtk_kernels.gpu_bench.run import main

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu_kernels.py"


def run_script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_without_a_gpu_one_line_says_so() -> None:
    done = run_script("--quick", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert done.stderr == f"no GPU that torch {torch.__version__} can use: nothing to check or time here\n"


@pytest.mark.gpu
@pytest.mark.slow
def test_a_quick_run_on_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    done = run_script("--quick", "--json", str(file), TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    assert written["basis"] == "measured"
    assert written["status"] == "complete"
    assert written["gpu"]
    assert all(check["ok"] for check in written["checks"])
    assert all(row["contenders"]["triton"]["cuda_graph"] for row in written["rows"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "--seconds must be positive, got 0"),
        (["--seconds", "nan"], "--seconds must be positive, got nan"),
        (["--only", "softmax"], "--only must be part of a case's name, got 'softmax'"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    code = (
        "import sys\nfrom dtk_kernels.gpu_bench.run import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "gpu.json"
    report.write(file, {"rows": [1]})
    assert json.loads(file.read_text()) == {"rows": [1]}
    with pytest.raises(TypeError):
        report.write(file, {"rows": [2], "bad": object()})
    assert json.loads(file.read_text()) == {"rows": [1]}
    assert [path.name for path in file.parent.iterdir()] == ["gpu.json"]


def test_table() -> None:
    times: dict[str, Any] = {"median_s": 2e-6, "bytes_per_s": 3e12, "fraction_of_memory_bandwidth": 0.875}
    lines = report.table([{"case": "block_score[x]", "contenders": {"triton": times}}]).splitlines()
    assert lines[0].split() == ["case", "contender", "us", "a", "call", "GB/s", "of", "limit"]
    assert lines[1].split() == ["block_score[x]", "triton", "2.0", "3000", "0.88"]
