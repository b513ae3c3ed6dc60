"""The process around a command: signals at any moment, and standard streams that are closed, full or gone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtk.cli.interrupts import interrupts_held_back
from tests.cli.terminal import run_dtk

DTK = (sys.executable, "-m", "dtk")
FULL = Path("/dev/full")

_STOPPED = """
import os, signal, sys, types

class Stop:
    # An interrupt in the middle of the imports, where a slow disk would leave a person waiting.
    def find_spec(self, name, path=None, target=None):
        if name == "rich.console":
            os.kill(os.getpid(), signal.Signals[os.environ["SIGNAL"]])
        return None

sys.meta_path.insert(0, Stop())
from dtk.cli.entry import main
main()
"""

_COMMAND = """
import os, signal, sys, time
import typer
from dtk.cli import entry, main
from dtk.cli.options import JsonOption
from dtk.cli.output import EXIT_INTERRUPTED, Output
app = typer.Typer(pretty_exceptions_enable=False)

@app.callback()
def root() -> None: ...

@app.command()
def work(keep: bool = False, as_json: JsonOption = False) -> None:
    output = Output("work", as_json=as_json)
    output.say("working")
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    except KeyboardInterrupt:
        if not keep:
            raise
        output.finish({"done": 1}, status="interrupted")
        raise typer.Exit(EXIT_INTERRUPTED)

main.app = app
entry.main()
"""


def _run(*command: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the redirections of a shell."""
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {shell}', "bash", *command],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupt_during_the_imports(name: str, code: int) -> None:
    words = ("config", "show", "scout", "--json")
    done = _run(sys.executable, "-c", _STOPPED, *words, SIGNAL=name)
    assert (done.returncode, done.stderr) == (code, "dtk: interrupted\n")
    document = json.loads(done.stdout)
    assert (document["command"], document["error"]["message"]) == ("config show", "interrupted")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupt_while_pydantic_imports_datetime(name: str, code: int) -> None:
    stopped = _STOPPED.replace('"rich.console"', '"datetime"')
    done = _run(sys.executable, "-c", stopped, "config", "show", "scout", SIGNAL=name)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "dtk: interrupted\n")


def test_an_interrupt_during_the_imports_names_the_longest_command() -> None:
    words = ("scout", "bench", "kernel", "--json")
    done = _run(sys.executable, "-c", _STOPPED, *words, SIGNAL="SIGINT")
    assert json.loads(done.stdout)["command"] == "scout bench kernel"


_STOPPED_IN_TORCH = """
import os, signal, sys

class Stop:
    # In the middle of torch's own start-up, where it does not survive an exception.
    def find_spec(self, name, path=None, target=None):
        if name == "torch.nn":
            os.kill(os.getpid(), signal.Signals[os.environ["SIGNAL"]])
        if name == "dtk.scout.bench.case":
            sys.stderr.write("torch is there\\n" if "torch.nn" in sys.modules else "torch is missing\\n")
        return None

sys.meta_path.insert(0, Stop())
from dtk.cli.entry import main
main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interrupt_waits_until_torch_is_imported(name: str, code: int) -> None:
    words = ("scout", "bench", "kernel", "--json")
    done = _run(sys.executable, "-c", _STOPPED_IN_TORCH, *words, SIGNAL=name)
    assert (done.returncode, done.stderr) == (code, "torch is there\ndtk: interrupted\n")
    assert json.loads(done.stdout)["error"]["message"] == "interrupted"


def test_a_second_interrupt_does_not_wait() -> None:
    reached = []

    def interrupt_twice() -> None:
        with interrupts_held_back():
            for count in (1, 2):
                signal.raise_signal(signal.SIGINT)
                reached.append(count)

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert reached == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("delay_s", [0.05, 0.15, 0.3])
def test_an_interrupt_at_any_moment(delay_s: float) -> None:
    with subprocess.Popen(
        [*DTK, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        time.sleep(delay_s)
        child.send_signal(signal.SIGTERM)
        _, stderr = child.communicate(timeout=60)
    # Before Python runs our first line, the signal simply ends the process.
    assert child.returncode in {143, -signal.SIGTERM}
    assert "Traceback" not in stderr


def test_the_entry_point_imports_nothing_that_is_not_there() -> None:
    code = "import sys; before = set(sys.modules); import dtk.cli.entry; print(*set(sys.modules) - before)"
    done = _run(sys.executable, "-c", code)
    assert set(done.stdout.split()) == {"dtk", "dtk.cli", "dtk.cli.entry"}


def test_a_terminated_command_reports_as_an_interrupted_one() -> None:
    done = _run(sys.executable, "-c", _COMMAND, "work", "--json")
    assert (done.returncode, done.stderr) == (143, "working\ndtk: interrupted\n")
    assert json.loads(done.stdout)["error"]["message"] == "interrupted"


def test_a_terminated_command_keeps_what_it_has() -> None:
    done = _run(sys.executable, "-c", _COMMAND, "work", "--keep", "--json")
    assert done.returncode == 143
    document = json.loads(done.stdout)
    assert (document["status"], document["data"]) == ("interrupted", {"done": 1})


@pytest.mark.parametrize(
    "words", ["config schema scout", "config schema scout --json", "bogus --json", "--help"]
)
@pytest.mark.parametrize(
    ("redirection", "message"), [(">&-", "Bad file descriptor"), (f">{FULL}", "No space left on device")]
)
def test_a_result_that_cannot_be_written(words: str, redirection: str, message: str) -> None:
    if str(FULL) in redirection and not FULL.exists():
        pytest.skip("no /dev/full")
    done = _run(*DTK, *words.split(), shell=redirection)
    assert done.returncode == 4
    lines = done.stderr.splitlines()
    # A command that failed says so first.
    assert len(lines) == (2 if "bogus" in words else 1)
    assert lines[-1].startswith("dtk: ")
    assert message in lines[-1]


@pytest.mark.parametrize(
    "words", ["config schema scout", "config schema scout --json", "bogus --json", "--help"]
)
def test_a_reader_that_has_gone(words: str) -> None:
    done = _run(*DTK, *words.split(), shell="| true")
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == ("bogus" in words)


@pytest.mark.parametrize("redirection", ["2>&-", f"2>{FULL}", "2> >(true)", "<&-"])
@pytest.mark.parametrize("words", ["config schema scout --json", "bogus --json"])
def test_a_lost_stderr_changes_nothing(words: str, redirection: str) -> None:
    if str(FULL) in redirection and not FULL.exists():
        pytest.skip("no /dev/full")
    whole = run_dtk(*words.split())
    done = _run(*DTK, *words.split(), shell=redirection)
    assert (done.returncode, done.stdout) == (whole.code, whole.stdout)


def test_all_streams_closed() -> None:
    assert _run(*DTK, "bogus", shell="<&- >&- 2>&-").returncode == 2
    assert _run(*DTK, "bogus", "--json", shell="<&- >&- 2>&-").returncode == 4


@pytest.mark.parametrize("columns", ["0", "00", "1"])
def test_a_terminal_without_columns(columns: str) -> None:
    assert "SECTION" in _run(*DTK, "config", "show", "--help", COLUMNS=columns).stdout or columns == "1"
    tables = _run(*DTK, "models", "list", COLUMNS=columns).stdout
    assert "tiny" in tables
