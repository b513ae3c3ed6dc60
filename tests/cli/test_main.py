"""The root command: exit codes, the one-line errors, and the JSON error object of each kind of failure."""

import io
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from rich.console import Console

from dtk import __version__, errors
from dtk.cli import main, options, output
from dtk_kernels import status
from tests.cli.terminal import TERMINALS, plain, run_dtk

FAILURES: dict[str, tuple[Callable[[], Exception], int, str]] = {
    "input": (
        lambda: errors.InputError("must be even", field="--n", value=3, hint="try 4"),
        2,
        "--n: must be even",
    ),
    "check": (lambda: errors.CheckFailedError("claim does not hold"), 1, "claim does not hold"),
    "not-testable": (lambda: errors.NotTestableError("no GPU here"), 3, "no GPU here"),
    "run": (lambda: errors.RunFailedError("rank 1 has gone"), 4, "rank 1 has gone"),
    "disk": (lambda: OSError(28, "No space left on device"), 4, "No space left on device"),
    "instruction-set": (lambda: status.InstructionSetError("DTK_CPU_ISA is 'x'"), 2, "DTK_CPU_ISA is 'x'"),
    "required": (lambda: status.NativeModuleRequiredError("DTK_REQUIRE_NATIVE is 1"), 3, "NATIVE is 1"),
    "internal": (lambda: ZeroDivisionError("division by zero"), 70, "ZeroDivisionError: division by zero"),
    "two-lines": (lambda: errors.InputError("first\nsecond"), 2, "first second"),
    "abort": (typer.Abort, 130, "interrupted"),
    "not-finite": (lambda: errors.InputError("must be finite", value=float("nan")), 2, "must be finite"),
    "controls": (lambda: errors.InputError("red \x1b[31m"), 2, "red "),
    "long": (lambda: errors.InputError("x" * 10**6), 2, "x" * 1000),
}


@pytest.fixture(autouse=True)
def failing_app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """Put commands that fail in place of the real ones."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    group = typer.Typer(no_args_is_help=True)
    app.add_typer(group, name="group")

    @group.command("fail")
    def fail(kind: str, as_json: options.JsonOption = False, verbose: options.VerboseOption = False) -> None:
        error = FAILURES[kind][0]()
        raise error

    @group.command("finish")
    def finish(
        count: Annotated[int, typer.Option(min=1)], as_json: options.JsonOption = False, code: int = 0
    ) -> None:
        said = output.Output("group finish", as_json=as_json)
        said.say(f"counting to {count} [not markup]")
        said.finish({"count": count}, basis="measured", show=lambda console: console.print(f"count {count}"))
        raise typer.Exit(code)

    monkeypatch.setattr(main, "app", app)
    return app


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_one_line_and_an_exit_code(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, code, message = FAILURES[kind]
    assert main.run(["group", "fail", kind]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dtk: ")
    assert captured.err.count("\n") == 1
    assert captured.err.removesuffix("\n").isprintable()
    assert len(captured.err) < 5000
    assert message in captured.err


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_one_json_object(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, code, message = FAILURES[kind]
    assert main.run(["group", "fail", kind, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["command"], document["status"]) == (
        "dtk.result/1",
        "group fail",
        "error",
    )
    assert set(document["error"]) == {"message", "field", "value", "hint"}
    assert (
        " ".join(document["error"]["message"].split()) in plain(message)
        or message in document["error"]["message"]
    )


def test_the_parts_of_an_input_error_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["group", "fail", "input", "--json"])
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == {"message": "must be even", "field": "--n", "value": 3, "hint": "try 4"}


def test_verbose_shows_where_it_happened(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["group", "fail", "internal", "--verbose"])
    captured = capsys.readouterr()
    assert "Traceback" in captured.err
    assert "in fail" in captured.err


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        (["group", "finish", "--count", "0"], "--count", "must be greater than or equal to 1"),
        (["group", "finish", "--count", "x"], "--count", "must be a valid integer"),
        (["group", "finish"], "--count", "is missing"),
        (["group", "finish", "--coun", "1"], None, "No such option: --coun"),
        (["group", "nonsense"], None, "No such command 'nonsense'"),
        (["nonsense"], None, "No such command 'nonsense'"),
        (["group", "fail"], "kind", "is missing"),
    ],
)
def test_wrong_usage(
    arguments: list[str], field: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*arguments, "--json"]) == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert message in error["message"]
    assert error["field"] == field
    assert error["value"] == (arguments[3] if "must be" in message else None)
    assert error["hint"].startswith("see 'dtk")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["group"]])
def test_a_group_alone_shows_its_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    captured = capsys.readouterr()
    assert "Usage: dtk" in captured.out + captured.err
    assert "dtk: ;" not in captured.err


def test_a_result_goes_to_stdout_and_talk_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["group", "finish", "--count", "3"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("count 3\n", "counting to 3 [not markup]\n")


def test_a_json_result_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["group", "finish", "--count", "3", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document == {
        "schema": "dtk.result/1",
        "command": "group finish",
        "status": "ok",
        "basis": "measured",
        "data": {"count": 3},
        "warnings": [],
    }


def test_figures_that_json_does_not_know_are_null_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = output.Output("group finish", as_json=True)
    said.finish({"loss": math.nan, "rows": [{"gap": 1.0}, {"gap": -math.inf}], "n": 1, "none": None})
    document = json.loads(capsys.readouterr().out)
    assert document["data"] == {"loss": None, "rows": [{"gap": 1.0}, {"gap": None}], "n": 1, "none": None}
    assert document["warnings"] == ["null stands for NaN or infinity in loss, rows[1].gap"]


def test_a_report_that_goes_wrong_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise ZeroDivisionError("no text")

        __repr__ = __str__

    def unprintable() -> Exception:
        return errors.InputError("m", hint=Unprintable())  # type: ignore[arg-type]

    monkeypatch.setitem(FAILURES, "input", (unprintable, 2, ""))
    assert main.run(["group", "fail", "input", "--json"]) == 70
    captured = capsys.readouterr()
    assert captured.err == "dtk: internal error while reporting, ZeroDivisionError: no text\n"


def test_no_terminal_is_too_narrow_for_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert output.Output("group finish").stdout.width >= 40


def test_progress_without_a_total_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = output.Output("group finish")
    monkeypatch.setenv("TERM", "xterm")
    said.stderr = Console(file=io.StringIO(), force_terminal=True, width=80)
    with said.progress() as progress:
        progress.add_task("reading", total=None)
        progress.refresh()
    assert isinstance(said.stderr.file, io.StringIO)
    assert "None" not in said.stderr.file.getvalue()
    assert "0/?" in said.stderr.file.getvalue()


def test_a_command_chooses_its_exit_code() -> None:
    assert main.run(["group", "finish", "--count", "1", "--code", "3"]) == 3


_CHILD = """
import sys, typer
from dtk.cli import main
app = typer.Typer(pretty_exceptions_enable=False)

@app.callback()
def root() -> None: ...

@app.command()
def wait(as_json: bool = typer.Option(False, "--json")) -> None:
    import time
    print("ready", flush=True)
    time.sleep(60)

@app.command()
def flood() -> None:
    while True:
        print("x" * 1000)

main.app = app
sys.exit(main.run(sys.argv[1:]))
"""


def _child(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_real_interrupt(flags: list[str]) -> None:
    with _child("wait", *flags) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=30)
    assert (child.returncode, stderr) == (130, "dtk: interrupted\n")
    if flags:
        assert json.loads(stdout)["error"]["message"] == "interrupted"


def test_a_reader_that_goes_away() -> None:
    with _child("flood") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(timeout=30) == 141
        assert child.stderr.read() == ""


def test_a_full_disk_under_stdout() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    with full.open("w") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "dtk", "--help"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("terminal", TERMINALS)
def test_version(terminal: str) -> None:
    result = run_dtk("--version", terminal=terminal)
    assert (result.code, result.stdout, result.stderr) == (0, f"dtk {__version__}\n", "")


@pytest.mark.parametrize("terminal", TERMINALS)
def test_an_error_reads_the_same_on_every_terminal(terminal: str) -> None:
    result = run_dtk("scout", "nonsense", "--json", terminal=terminal)
    assert result.code == 2
    assert result.json()["error"]["message"] == "No such command 'nonsense'"
    assert result.stderr == "dtk: No such command 'nonsense'; see 'dtk scout --help'\n"


def test_the_shell_gets_its_completions() -> None:
    request = {"_DTK_COMPLETE": "complete_bash", "COMP_WORDS": "dtk mod", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dtk"], env=os.environ | request, capture_output=True, text=True, check=True
    )
    assert done.stdout == "models\n"
