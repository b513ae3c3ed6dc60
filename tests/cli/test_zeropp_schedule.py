"""`dtk zeropp schedule`: the JSON contract, the explanation, files, timelines, Ctrl-C, and bad input."""

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtk.cli.main import run
from dtk.pipeline.generators.registry import make_schedule
from dtk.pipeline.text import schedule_from_text, schedule_to_text
from dtk.pipeline.validate import validate
from dtk.timeline.perfetto_check import check_trace_file
from dtk.zeropp.config import SCHEDULE_NAMES, ZeroppConfig
from tests.cli.terminal import plain, run_dtk

GOLDEN = Path(__file__).parent / "golden"
SMALL = ("--pp", "4", "--chunks", "2", "--unit", "4", "--micro-batches", "4")
TIMES = ("--forward-time", "1s", "--input-grad-time", "1s", "--weight-grad-time", "1s")
GOOD = "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"


def schedule(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["zeropp", "schedule", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def data_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = schedule(capsys, *arguments, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["status"], document["basis"]) == ("ok", "simulated")
    data: dict[str, Any] = document["data"]
    return data


def test_the_names_that_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    data = data_of(capsys, "--schedule", "zeropp", *SMALL, *TIMES, "--transfer-time", "0s")
    names = "makespan_s", "idle_s_by_rank", "bubble_ratio", "peak_activation_chunks_by_rank"
    assert [data[name] for name in names] == [27.0, [3.0] * 4, pytest.approx(12 / 108), [8] * 4]
    assert (data["gathers_by_rank"], data["reduce_scatters_by_rank"]) == ([3] * 4, [2] * 4)


@pytest.mark.native
@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_every_schedule_answers_with_the_same_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A script may give the unit to all of them."""
    chunks = "1" if name in {"gpipe", "1f1b", "zb-h2"} else "2"
    sizes = ("--pp", "2", "--chunks", chunks, "--unit", "4", "--micro-batches", "8")
    data = data_of(capsys, "--schedule", name, *sizes, *TIMES, "--transfer-time", "0s", "--effort", "100000")
    assert (data["pp"], data["chunks"], data["micro_batches"]) == (2, int(chunks), 8)
    work = 8 * 3 * int(chunks)
    assert data["idle_s_by_rank"] == [data["makespan_s"] - work] * 2
    assert data["bubble_ratio"] == pytest.approx(1 - work / data["makespan_s"])
    assert data["lower_bound_s"] <= data["makespan_s"]
    assert len(data["gathers_by_rank"]) == len(data["reduce_scatters_by_rank"]) == 2
    causes = data["idle_s_by_cause_by_rank"]
    assert [sum(idle.values()) for idle in causes] == pytest.approx(data["idle_s_by_rank"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("zeropp", ("--schedule", "zeropp", *SMALL, *TIMES)),
        (
            "interleaved_unequal",
            (
                *("--schedule", "interleaved", "--pp", "2", "--chunks", "2", "--micro-batches", "4"),
                *("--forward-time", "1ms,1ms,1ms,1.5ms", "--input-grad-time", "1ms"),
                *("--weight-grad-time", "800us", "--transfer-time", "50us", "--gather-time", "300us"),
                *("--reduce-time", "200us", "--optimizer-time", "400us", "--resident-chunks", "2"),
                *("--lookahead", "1"),
            ),
        ),
    ],
)
def test_golden_json(name: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert data_of(capsys, *arguments) == json.loads((GOLDEN / f"schedule_{name}.json").read_text())


def test_text_is_torchs_notation_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = schedule(capsys, "--schedule", "zeropp", *SMALL, "--text")
    expected = make_schedule("zeropp", num_ranks=4, num_chunks=2, num_microbatches=4, unit=4)
    assert (code, out) == (0, schedule_to_text(expected))
    data = data_of(capsys, "--schedule", "zeropp", *SMALL, "--text")
    assert data["text"] == out.splitlines()


def test_small_schedules_are_drawn_in_slots(capsys: pytest.CaptureFixture[str]) -> None:
    data = data_of(capsys, "--schedule", "zeropp", *SMALL, "--draw")
    rows = [line.replace("I", "B") for line in data["drawing"] if line.startswith("r")]
    golden = Path(__file__).parents[1] / "pipeline" / "generators" / "golden" / "zeropp_p4_v2_u4.txt"
    assert rows == golden.read_text().splitlines()


@pytest.mark.parametrize(
    ("columns", "line"), [("80", "rank 3 compute ......FFF"), ("120", "r3 ... ... ... F00 F01")]
)
def test_a_drawing_fits_the_terminal(
    columns: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = schedule(capsys, "--schedule", "zeropp", *SMALL, "--draw")
    assert code == 0
    assert f"\n{line}" in out
    assert max(map(len, out.partition("\n\n")[0].splitlines())) <= int(columns)


def test_the_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = schedule(capsys, "--schedule", "zeropp", *SMALL)
    assert (code, err) == (0, "")
    text = plain(out)
    assert text.startswith("zeropp, P=4, V=2, M=4, U=4: 27 s, ranks stand idle 11.11% of it")
    assert "rank compute idle fill gradient drain held gathers reductions 0 24 s 3 s - 3 s - 8 3 2" in text
    assert (
        "lower bound 27 s (analytic), gap 0.00%: with these stages on these ranks nothing is shorter" in text
    )
    assert "P-1 + (n-1)(2P-1-U) slots, n units = 3 s; the simulation agrees" in text
    assert "min(U V, (V-1)U + 2P) = 8; the simulation agrees" in text


def test_a_gap_is_told_and_so_is_the_absence_of_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--schedule", "1f1b", "--pp", "2", "--micro-batches", "4", "--forward-time", "1s,2s")
    _, out, _ = schedule(capsys, *arguments, "--transfer-time", "1ms")
    assert re.search(r"lower bound [\d.]+ s \(analytic\), gap [1-9]\d*\.\d\d%\n", out)
    assert "no closed formula holds" in out


def test_warnings_reach_json_and_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = schedule(capsys, "--unit", "3", "--transfer-time", "2s", "--json")
    warnings = json.loads(out)["warnings"]
    assert code == 0
    assert "a unit of 3 micro-batches is shorter than the pipeline of 4 ranks" in warnings[0]
    assert "the links, not the ranks, may set the pace" in warnings[1]
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".svg", ".png"])
def test_timelines(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"t{suffix}"
    code, _, err = schedule(capsys, *SMALL, "--transfer-time", "10ms", "--timeline", str(file))
    assert code == 0, err
    if ".json" in suffix:
        assert check_trace_file(file) == []
    else:
        assert file.read_bytes().startswith(b"\x89PNG" if suffix == ".png" else b"<svg")


def test_a_timeline_that_cannot_be_written_costs_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.svg"
    file.mkdir()
    code, out, err = schedule(capsys, *SMALL, "--timeline", str(file), "--json")
    assert code == 4
    document = json.loads(out)
    assert (document["status"], document["data"]["makespan_s"]) == ("failed", 27.0)
    assert err.startswith(f"dtk: cannot write {file}")


def test_out_keeps_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "folder"
    code, out, err = schedule(capsys, *SMALL, "--seed", "7", "--json", "--out", str(folder))
    assert (code, err) == (0, f"results in {folder}\n")
    assert {path.name for path in folder.iterdir()} == {
        *("result.json", "request.json", "config.yaml", "timeline.json.gz", "timeline.svg"),
        *("schedule.csv", "schedule_with_communication.csv"),
    }
    assert json.loads((folder / "result.json").read_text()) == json.loads(out)["data"]
    assert json.loads((folder / "request.json").read_text())["seed"] == 7
    settings = ZeroppConfig(**yaml.safe_load((folder / "config.yaml").read_text()))
    assert (settings.pp, settings.unit) == (4, 4)
    complete = schedule_from_text((folder / "schedule_with_communication.csv").read_text())
    validate(complete, resident_chunks=1)
    for name in ("schedule.csv", "schedule_with_communication.csv"):
        again = data_of(capsys, "--file", str(folder / name))
        assert again["makespan_s"] == 27.0
        assert again["gathers_by_rank"] == [3] * 4

    code, _, err = schedule(capsys, *SMALL, "--out", str(folder))
    assert code == 2
    assert "--out: holds the results of an earlier run" in err


def test_the_configuration_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('schedule = "zb-h1"\npp = 3\nchunks = 1\nforward_time_s = ["1s", "2s", "3s"]\n')
    data = data_of(capsys, "--config", str(file), "--set", "micro_batches=5")
    assert (data["schedule"], data["pp"], data["micro_batches"]) == ("zb-h1", 3, 5)
    assert data["compute_s_by_rank"] == [15.0, 20.0, 25.0]


@pytest.mark.native
def test_the_searched_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--schedule", "optimal", "--pp", "3", "--chunks", "1", "--micro-batches", "4")
    data = data_of(capsys, *arguments, "--memory-chunks", "5", "--quiet")
    search = data["search"]
    assert (search["memory_chunks"], search["interrupted"]) == (5, False)
    assert search["makespan_s"] == data["makespan_s"]
    assert max(data["peak_activation_chunks_by_rank"]) <= 5
    assert search["lower_bound_s"] <= search["makespan_s"]
    assert data_of(capsys, *arguments)["search"]["memory_chunks"] == 3
    code, out, err = schedule(capsys, *arguments)
    assert (code, err) == (0, "searching; Ctrl-C ends it and keeps the best so far\n")
    assert "within 3 chunk activations a rank the bound is" in out


@pytest.mark.native
def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    # The answer for these stages is not proved at once, and the effort would take hours.
    sizes = ("--pp", "6", "--chunks", "2", "--micro-batches", "24", "--memory-chunks", "7")
    times = ("--forward-time", "9ms", "--input-grad-time", "13ms", "--weight-grad-time", "4ms")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "dtk", "zeropp", "schedule", "--schedule", "optimal", *sizes, *times),
            *("--effort", str(10**15), "--json", "--out", str(folder)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("searching")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert document["status"] == "interrupted"
    assert document["data"]["search"]["interrupted"] is True
    assert document["data"] == json.loads((folder / "result.json").read_text())
    kept = schedule_from_text((folder / "schedule.csv").read_text())
    validate(kept)
    assert (kept.num_ranks, kept.num_microbatches) == (6, 24)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--unit", "0"), "--unit: must be greater than or equal to 1 (got 0)"),
        (("--pp", "0"), "--pp: must be greater than or equal to 1 (got 0)"),
        (("--pp", "-3"), "--pp: must be greater than or equal to 1 (got -3)"),
        (("--pp", "four"), "--pp: must be a valid integer"),
        (("--micro-batches", "0"), "--micro-batches: must be greater than or equal to 1"),
        (("--pp", str(10**12)), "make more than 20000000 actions"),
        (("--micro-batches", str(10**12)), "make more than 20000000 actions"),
        (("--chunks", str(10**12)), "make more than 20000000 actions"),
        (("--micro-batches", str(10**6)), "--micro-batches: with 4 ranks of 2 chunks, more than 20000000"),
        (("--forward-time", "-1s"), "--forward-time: must not be negative (got '-1s')"),
        (("--forward-time=-1s",), "--forward-time: must not be negative (got '-1s')"),
        (("--optimizer-time", "-0.5ms"), "--optimizer-time: must not be negative"),
        (("--set", "forward_time_s=-1"), "forward_time_s.0: must not be negative"),
        (("--weight-grad-time", "1"), "--weight-grad-time: needs a unit (got '1'); for example"),
        (("--weight-grad-time", "soon"), "--weight-grad-time: must be a number of seconds with its unit"),
        (("--input-grad-time", "1s,2s"), "--input-grad-time: has 2 values for 8 stages (got '1s,2s'); give"),
        (("--transfer-time", "1m"), "can be meant in two ways (got '1m'); write 1min for minutes or 1ms"),
        (("--schedule", "2f2b"), "--schedule: no such schedule (got '2f2b'); one of gpipe, 1f1b,"),
        (("--schedule", "1f1b", "--chunks", "2"), "--chunks: 1f1b has exactly 1 chunk a rank (got 2)"),
        (("--schedule", "zb-h1", "--group-size", "4"), "--group-size: zb-h1 has no such option (got 4)"),
        (("--schedule", "interleaved", "--group-size", "3"), "--group-size: "),
        (("--no-split", "--weight-order", "fifo"), "--weight-order: has no effect without the split"),
        (("--schedule", "1f1b", "--no-split"), "--no-split: 1f1b has no such option"),
        (("--weight-order", "random"), "--weight-order: must be 'lifo' or 'fifo' (got 'random')"),
        (("--reduce", "never"), "--reduce: must be 'unit', 'microbatch' or 'end' (got 'never')"),
        (("--resident-chunks", "0"), "--resident-chunks: must be greater than or equal to 1"),
        (("--lookahead", "-1"), "--lookahead: must be greater than or equal to 0"),
        (("--schedule", "dualpipe-v", "--resident-chunks", "1"), "--resident-chunks: (0F7;7B3)OVERLAP_F_B"),
        (
            ("--schedule", "optimal", "--memory-chunks", "1"),
            "--memory-chunks: rank 0 needs 2 for one micro-batch alone, so no schedule meets the limit (got",
        ),
        (("--memory-chunks", str(10**30)), "--memory-chunks: must be less than or equal to 1000000000"),
        (("--effort", str(10**30)), "--effort: must be less than or equal to 1000000000000000000"),
        (("--schedule", "optimal", "--effort", "0"), "--effort: must be greater than or equal to 1"),
        (("--schedule", "optimal", "--micro-batches", "90000"), "at most 1000000 actions can be scheduled"),
        (("--timeline", "picture.bmp"), "--timeline: no format of that name (got 'picture.bmp')"),
        (("--timeline", "/no/such/folder/t.svg"), "--timeline: the folder does not exist"),
        (
            ("--file", "/no/such/file"),
            "--file: cannot read the file: No such file or directory (got '/no/such/file')",
        ),
        (("--file", "/"), "--file: is not a regular file (got '/'); name a file, or - for standard input"),
        (("--file", "x.csv", "--schedule", "1f1b"), "--file: give a schedule's name or a file, not both"),
        (("--set", "ranks=4"), "ranks: unknown key"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = schedule(capsys, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace(",1W1", ""), "s.csv: rank 1: 1W1 is missing"),
        (
            GOOD.replace("1W1", "1W3"),
            "s.csv: rank 0: 0F2 is missing; 1W3 on rank 1, position 5, makes it 4 micro-batches",
        ),
        (GOOD.replace(",0I1", ",0I1,0I1"), "s.csv: rank 0"),
        (GOOD.replace("1I0,1F1", "1F1,1F0,1I0"), "s.csv: rank 1"),
        (GOOD.replace("1F1,1I1", "1I1,1F1"), "s.csv: rank 1"),
        (GOOD.replace("0W1", "1W1"), "s.csv: row 2, column 1: stage 1 is on row 1 too"),
        (GOOD.replace("1F1", "1F"), "s.csv: row 2, column 3: F needs a micro-batch (got '1F')"),
        (
            GOOD.replace("1F1", "forward"),
            "s.csv: row 2, column 3: not an action of a schedule (got 'forward')",
        ),
        (GOOD.replace("0F1,0I0", "0I0,0F1"), None),
        ("0F0,0I0,0F1,0I1,0W0,0W1\n1F1,1I1,1F0,1I0,1W0,1W1\n", "s.csv: "),
        ("", "s.csv: holds no row"),
    ],
)
def test_a_wrong_file_is_one_clear_line(
    text: str, message: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.csv"
    file.write_text(text)
    code, out, err = schedule(capsys, "--file", str(file))
    if message is None:
        assert (code, err) == (0, "")
        return
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith(f"dtk: {message}")


def test_dash_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode("utf-8-sig"))))
    assert data_of(capsys, "--file", "-")["schedule"] == "stdin"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.replace(",1W1", "").encode())))
    assert schedule(capsys, "--file", "-") == (2, "", "dtk: stdin: rank 1: 1W1 is missing\n")


def test_sizes_beside_a_file_must_be_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.csv"
    file.write_text(GOOD)
    assert data_of(capsys, "--file", str(file), "--pp", "2", "--micro-batches", "2")["schedule"] == "s.csv"
    for option, value in (("--pp", "3"), ("--chunks", "2"), ("--micro-batches", "5")):
        code, _, err = schedule(capsys, "--file", str(file), option, value)
        assert code == 2
        assert re.fullmatch(rf"dtk: {option}: the file says [12] \(got {value}\)\n", err)


def test_no_compiled_search_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dtk.pipeline.optimal.search.native_module", lambda: None)
    code, _, err = schedule(capsys, "--schedule", "optimal", "--quiet")
    assert code == 4
    assert err.startswith("dtk: the search for schedules is compiled code")


def test_neither_help_nor_a_refusal_imports_numpy() -> None:
    script = "import sys; from dtk.cli.main import run; print(run(sys.argv[1:]), 'numpy' in sys.modules)"
    for arguments in (["--help"], ["--unit", "0"]):
        done = subprocess.run(
            [sys.executable, "-c", script, "zeropp", "schedule", *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] in ("0 False", "2 False")


def test_help_breaks_no_sentence() -> None:
    text = run_dtk("zeropp", "schedule", "--help").stdout
    assert "Ctrl-C ends the search for an optimal schedule; the best one so far is reported." in plain(text)
