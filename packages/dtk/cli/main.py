"""The root of the `dtk` command: attaches the groups and turns errors into one line and an exit code."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import pydantic
import typer
from typer.exceptions import TyperException

from dtk import __version__
from dtk.cli import config, doctor, models, repro, scout
from dtk.cli.output import EXIT_INTERRUPTED, json_document
from dtk.configuration import input_error
from dtk.errors import DtkError, InputError, RunFailedError

__all__ = ["app", "main", "run"]

EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE

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
app.add_typer(scout.app, name="scout")
app.add_typer(repro.app, name="repro")
app.add_typer(config.app, name="config")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for a user's mistake or an interrupt."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _invoke(words)
        sys.stdout.flush()
    except DtkError as error:
        return _report(error, words)
    except TyperException as error:
        return _report_usage(error, words)
    except (KeyboardInterrupt, typer.Abort):
        _report(DtkError("interrupted"), words)
        return EXIT_INTERRUPTED
    except OSError as error:
        return _report_os_error(error, words)
    except Exception as error:  # noqa: BLE001  the last line of defence: report, never a bare traceback
        return _report_internal(error, words)
    return code


def main() -> NoReturn:
    """Entry point of the console script."""
    sys.exit(run())


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
    return _report(InputError(message, field=field, value=value, hint=f"see '{path} --help'"), words)


def _report_os_error(cause: OSError, words: list[str]) -> int:
    if cause.errno == errno.EPIPE:
        # The reader of our stdout has gone (`dtk ... | head`): say nothing more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
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
    if "--json" in words:
        sys.stdout.write(json_document(_command_path(words), "error", error=error) + "\n")
    sys.stderr.write(f"dtk: {' '.join(str(error).split())}\n")
    return error.exit_code


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
