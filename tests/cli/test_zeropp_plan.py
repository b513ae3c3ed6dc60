"""`dtk zeropp plan`: the report, the JSON contract, the files, the check, Ctrl-C, and bad input."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtk.cli.main import run
from dtk.cli.zeropp_plan_options import RECIPE_NAMES, STACK_NAMES
from dtk.costmodel.constants import stack_constants
from dtk.errors import InputError
from dtk.workload.states import RECIPES
from dtk.zeropp.planning import planner
from dtk.zeropp.planning.config import PlanConfig
from dtk.zeropp.planning.evaluation import Evaluator
from dtk.zeropp.planning.problem import RIVALS
from dtk.zeropp.planning.search import SearchResult
from tests.cli.terminal import plain

MODEL = ("--model", "gpt3-125m")
JOB = ("--cluster", "DGX-A100x1", "--global-batch", "16", "--sequence-tokens", "512")
SMALL = (*MODEL, *JOB)
PINNED = (*SMALL, "--pp", "2", "--chunks", "3", "--unit", "4", "--shard-ranks", "4", "--micro-batch", "1")


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["zeropp", "plan", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def data_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = plan(capsys, *arguments, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["command"], document["basis"]) == ("zeropp plan", "simulated")
    data: dict[str, Any] = document["data"]
    return data


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = plan(capsys, *SMALL)
    assert code == 0
    text = plain(out)
    for words in (
        "best: P=",
        "(simulated)",
        "layers, forward and backward",
        "optimizer states",
        "2sUb = ",
        "The best and its runners-up",
        "Rivals, each at its best",
        "nothing shorter is in the space, which has pipelines of 2 ranks or more: --pp 1",
    ):
        assert words in text
    assert all(name in text for name in RIVALS)
    assert [line.split(":")[0] for line in err.splitlines()[1:]] == [
        f"searching {name}" for name in ("zeropp", *RIVALS)
    ]


def test_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    data = data_of(capsys, *SMALL, "--rivals", "3d,fsdp", "--runners-up", "2")
    assert data["best"]["method"] == "zeropp"
    assert len(data["runners_up"]) == 2
    assert [row["method"] for row in data["rivals"]] == ["3d", "fsdp"]
    assert data["problem"]["chips"] == 8
    assert len(data["problem"]["fitted_constants"]) == 13
    assert data["problem"]["borrowed_constants"] == []
    parts = data["best"]["time_s_by_part"]
    assert sum(parts.values()) == pytest.approx(data["best"]["iteration_s"], rel=1e-4)
    assert sum(data["best"]["memory_bytes_by_part"].values()) == data["best"]["peak_bytes"]
    assert PlanConfig.model_validate(data["config"]).global_batch == 16


def test_options_that_are_given_stay(capsys: pytest.CaptureFixture[str]) -> None:
    best = data_of(capsys, *PINNED, "--recomputation", "full", "--no-keep-last-chunk", "--rivals", "none")[
        "best"
    ]
    assert (best["pipeline_parallel"], best["chunks"], best["unit"], best["shard_ranks"]) == (2, 3, 4, 4)
    assert (best["micro_batch"], best["recomputation"], best["keep_last_chunk"]) == (1, "full", False)


def test_a_check_of_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, *PINNED, "--check")
    assert code == 0
    assert plain(out).startswith("fits: P=2, V=3, U=4, D=4")
    assert data_of(capsys, *PINNED, "--check")["rivals"] == []


def test_a_check_of_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys, *PINNED, "--check", "--memory", "2500MiB")
    assert code == 1
    assert plain(out).startswith("does not fit: P=2, V=3, U=4")
    assert "where 2.4 GiB may be used" in plain(out)
    code, out, _ = plan(capsys, *PINNED, "--check", "--memory", "2500MiB", "--json")
    document = json.loads(out)
    assert (code, document["status"], document["data"]["best"]) == (1, "failed", None)
    assert document["data"]["nearest_that_does_not_fit"]["excess_bytes"] > 0


def test_a_model_that_fits_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = plan(capsys, "--model", "gpt3-175b", *JOB, "--quiet", "--rivals", "none")
    assert (code, out) == (2, "")
    assert err.startswith("dtk: --model: fits nowhere on DGX-A100x1: the nearest plan, P=")
    assert "GiB too much; optimizer states" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "gpt9"), "--model: unknown model"),
        (("--cluster", "A999x4"), "--cluster: unknown cluster"),
        (("--global-batch", "7"), "--global-batch: must be a multiple of 2"),
        (("--pp", "3"), "--pp: must divide the 8 chips"),
        (("--unit", "some"), "--unit: "),
        (("--unit", "400"), "--unit: a pipeline has at most 8 micro-batches"),
        (("--memory", "1e400GiB"), "--memory: is more than the 80 GiB of A100"),
        (("--memory", "0GiB"), "--memory: "),
        (("--global-batch", "1000000007", "--check"), "--global-batch: is more than the 1000000 sequences"),
        (("--memory", "40Gb"), "--memory: 'Gb' can be meant in two ways"),
        (("--time-budget", "5"), "--time-budget: needs a unit"),
        (("--rivals", "4d"), "--rivals: there is no method '4d'"),
        (("--hybrid", "zero3-zero1", "--pp", "2", "--shard-ranks", "4"), "--hybrid: needs replicas"),
        (("--hardware", "missing.toml"), "--hardware: cannot read"),
        (("--sequence-tokens", "4096"), "--sequence-tokens: is longer than the 2048 positions"),
    ],
)
def test_bad_input_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = plan(capsys, *SMALL, *arguments, "--quiet")
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_rate_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    link = "{name: mine, family: roce, bytes_per_s: 400Gb, latency_s: 5us, sources: {'*': here}}"
    file.write_text(f"links:\n- {link}\n")
    code, _, err = plan(capsys, *SMALL, "--hardware", str(file), "--quiet")
    assert code == 2
    assert "--hardware: links.0.bytes_per_s: 'Gb' is no unit of bytes per second (got '400Gb')" in err


def test_hardware_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[nodes]]\nname = "box"\nchip = "A100"\nnum_chips = 4\ntopology = "switch"\nnetwork = "RoCE-100"\n'
        'nic_chips = [[0, 1, 2, 3]]\nsources = { "*" = "counted" }\n'
    )
    pinned = ("--hardware", str(file), "--cluster", "boxx2", "--rivals", "none")
    assert data_of(capsys, *SMALL, *pinned)["problem"]["chips_per_node"] == 4


def test_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "plan"
    code, _, err = plan(capsys, *PINNED, "--rivals", "3d", "--out", str(folder))
    assert (code, err.splitlines()[-1]) == (0, f"results in {folder}")
    saved = json.loads((folder / "plan.json").read_text())
    assert saved["best"]["basis"] == "simulated"
    assert {"settings", "environment"} <= set(saved)
    assert (folder / "schedule.csv").read_text().count("\n") == 2
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert settings["pp"] == 2
    again = tmp_path / "again"
    code, _, _ = plan(capsys, "--config", str(folder / "config.yaml"), "--rivals", "3d", "--out", str(again))
    assert code == 0
    assert (again / "schedule.csv").read_text() == (folder / "schedule.csv").read_text()
    code, _, err = plan(capsys, *PINNED, "--out", str(folder))
    assert code == 2
    assert "holds the results of an earlier run" in err


def test_ctrl_c_keeps_the_best_so_far() -> None:
    command = [sys.executable, "-m", "dtk", "zeropp", "plan", "--model", "gpt3-13b", "--json"]
    command += ["--cluster", "64xA800-200Gb", "--global-batch", "512", "--rivals", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("searching zeropp"):
                break
        # The space has been listed; the first plan comes before all others are ruled out.
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out)["status"] == "interrupted"


def test_ctrl_c_before_any_plan_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Evaluator, "evaluate", interrupted)
    code, out, err = plan(capsys, *SMALL, "--json", "--quiet")
    document = json.loads(out)
    assert (code, document["status"], document["data"]["best"]) == (130, "interrupted", None)
    assert err.startswith("dtk: interrupted before any plan was found: of ")
    assert "fix options such as --pp" in err
    assert err.count("\n") == 1


def test_a_budget_that_ends_before_any_plan_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = plan(capsys, *SMALL, "--time-budget", "1us", "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("dtk: --time-budget: ended before any plan was found: of 0 configurations")
    assert "give more time" in err


def test_what_is_not_proven_is_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = planner.search

    def unproven(*arguments: Any, **options: Any) -> SearchResult:
        result = search(*arguments, **options)
        result.is_complete = False
        if "keep" not in options:
            result.best = []
        return result

    monkeypatch.setattr(planner, "search", unproven)
    code, out, _ = plan(capsys, *PINNED, "--rivals", "3d", "--quiet")
    assert code == 0
    text = plain(out)
    for words in (
        "best so far (not proven): P=2",
        "each at the best found, not all proven",
        "(not proven)",
        "3d: not searched to the end, nothing found yet",
        "not searched to the end: the best is not proven",
    ):
        assert words in text
    assert "nothing fits" not in text
    assert "nothing shorter" not in text


def test_a_faster_rival_is_told_right_away(capsys: pytest.CaptureFixture[str]) -> None:
    slow = (*SMALL, "--pp", "4", "--unit", "1", "--micro-batch", "1", "--rivals", "fsdp", "--quiet")
    code, out, _ = plan(capsys, *slow)
    assert code == 0
    text = plain(out)
    assert "fsdp is faster: 0." in text
    assert text.index("fsdp is faster: 0.") < text.index("Time of pipeline rank")
    assert data_of(capsys, *slow)["fastest_method"] == "fsdp"


def test_a_host_that_was_fitted_on_other_machines_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--model", "gpt3-125m", "--global-batch", "16", "--sequence-tokens", "512", "--rivals", "none"]
    code, out, _ = plan(capsys, *small, "--cluster", "DGX-H100x1", "--json")
    document = json.loads(out)
    assert code == 0
    assert any("zeropp: the host sets the pace" in each for each in document["warnings"])
    assert len(document["data"]["best"]["warnings"]) == 1
    assert "H100" in document["data"]["best"]["warnings"][0]
    assert json.loads(plan(capsys, *small, "--cluster", "DGX-A100x1", "--json")[1])["warnings"] == []


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("config.json", '{"model_type": "llama", "num_hidden_layers": 2}', "hidden_size: is missing"),
        ("model.toml", "family = 'gpt'\nnum_layers = 0", "num_layers: must be greater"),
    ],
)
def test_errors_of_a_models_file_name_it_and_no_option(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, key: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    code, _, err = plan(capsys, "--model", str(file), *JOB)
    assert code == 2
    assert f"--model: {file}: {key}" in err


def test_help_names_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(RECIPE_NAMES) == set(RECIPES)
    assert PlanConfig().recipe == RECIPE_NAMES[0]
    assert PlanConfig().stack == STACK_NAMES[0]
    assert [stack_constants(name).name for name in STACK_NAMES] == list(STACK_NAMES)
    with pytest.raises(InputError) as caught:
        stack_constants("none of them")
    assert all(name in str(caught.value) for name in STACK_NAMES)
    assert str(caught.value).count(",") == len(STACK_NAMES) - 1
    code, out, _ = plan(capsys, "--help")
    assert code == 0
    assert all(name in plain(out) for name in (*RECIPE_NAMES, *STACK_NAMES))


def test_the_models_are_listed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = plan(capsys, "--model", "list", *JOB)
    assert code == 2
    assert "gpt3-13b" in err
    assert "llama3-405b" in err
