"""The root of the `dtk` command: attaches the groups and turns errors into one line and an exit code."""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import pydantic
import typer
from typer.exceptions import TyperException

from dtk import __version__
from dtk.cli import config, doctor, hardware, models, repro, scout, zeropp
from dtk.cli.document import EXIT_INTERRUPTED, json_document
from dtk.cli.streams import lost_stdout, stdout_works
from dtk.configuration import input_error
from dtk.errors import DtkError, InputError, NotTestableError, RunFailedError
from dtk_kernels.status import InstructionSetError, NativeModuleRequiredError

__all__ = ["app", "run"]

_LINE_CHARACTERS = 4000

app = typer.Typer(
    name="dtk",
    help="Large language models with less: KV-cache offload, unlike chips, FP4, no tensor parallelism.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"dtk {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


app.command("doctor")(doctor.doctor)
app.add_typer(models.app, name="models")
app.add_typer(hardware.app, name="hardware")
app.add_typer(scout.app, name="scout")
app.add_typer(zeropp.app, name="zeropp")
app.add_typer(repro.app, name="repro")
app.add_typer(config.app, name="config")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for a user's mistake or an interrupt."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _outcome(words)
        sys.stdout.flush()
    except OSError as error:
        return lost_stdout(error)
    except KeyboardInterrupt:
        # A second Ctrl-C, while the first was being reported.
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last line of defence: reporting itself went wrong
        sys.stderr.write(_one_line(f"internal error while reporting, {type(error).__name__}: {error}"))
        return DtkError.exit_code
    return code


def _outcome(words: list[str]) -> int:
    """Run the command and report how it failed, if it did; raises OSError only where stdout is lost."""
    try:
        return _invoke(words)
    except DtkError as error:
        return _report(error, words)
    except InstructionSetError as error:
        return _report(InputError(str(error)), words)
    except NativeModuleRequiredError as error:
        return _report(NotTestableError(str(error)), words)
    except TyperException as error:
        return _report_usage(error, words)
    except (KeyboardInterrupt, typer.Abort):
        _report(DtkError("interrupted"), words)
        return EXIT_INTERRUPTED
    except OSError as error:
        if error.errno == errno.EPIPE or not stdout_works():
            raise
        return _report_os_error(error, words)
    except Exception as error:  # noqa: BLE001  a mistake of ours: report it, never a bare traceback
        return _report_internal(error, words)


def _invoke(words: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    if "_DTK_COMPLETE" in os.environ:
        # The shell asks for completions; Typer answers and exits.
        command.main(args=words, prog_name="dtk")
    # Not command.main(): it would turn interrupts and broken pipes into exits without a word.
    try:
        with command.make_context("dtk", words.copy()) as context:
            command.invoke(context)
    except typer.Exit as request:
        return request.exit_code
    except SystemExit as request:
        # Rich makes this of a broken pipe.
        if isinstance(request.__context__, BrokenPipeError):
            raise request.__context__ from None
        raise
    return 0


def _report_usage(error: TyperException, words: list[str]) -> int:
    message = error.format_message().rstrip(".")
    if not message:
        # A group without a command: Typer has printed its help.
        return InputError.exit_code
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "dtk"
    options = getattr(getattr(error, "param", None), "opts", None)
    field = options[0] if options else None
    value = None
    if options:
        message = error.message.rstrip(".") or "is missing"
    if isinstance(error.__cause__, pydantic.ValidationError):
        cause = input_error(error.__cause__)
        message, value = cause.message, cause.value
    message = message.rstrip(".")
    return _report(InputError(message, field=field, value=value, hint=f"see '{path} --help'"), words)


def _report_os_error(cause: OSError, words: list[str]) -> int:
    error = RunFailedError(f"{type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return _report(error, words)


def _report_internal(cause: Exception, words: list[str]) -> int:
    hint = "run again with --verbose for the traceback"
    error = DtkError(f"internal error, {type(cause).__name__}: {cause}", hint=hint)
    error.__cause__ = cause
    return _report(error, words)


def _report(error: DtkError, words: list[str]) -> int:
    if "--verbose" in words or "-v" in words:
        traceback.print_exception(error, file=sys.stderr)
    # First to stderr: stdout may be lost, and the reason with it.
    sys.stderr.write(_one_line(str(error)))
    if "--json" in words:
        sys.stdout.write(json_document(_command_path(words), "error", error=error) + "\n")
        sys.stdout.flush()
    return error.exit_code


def _one_line(text: str) -> str:
    """Return a message for stderr: on one line, of bounded length, and without control characters."""
    text = " ".join(text[:_LINE_CHARACTERS].split()) + ("..." if len(text) > _LINE_CHARACTERS else "")
    shown = (one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
    return f"dtk: {''.join(shown)}\n"


def _command_path(words: Sequence[str]) -> str:
    """Return the command's words, `scout generate` of `scout generate --model x`."""
    command: Any = typer.main.get_command(app)
    path: list[str] = []
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path.append(word)
    return " ".join(path)
