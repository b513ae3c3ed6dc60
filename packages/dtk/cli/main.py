"""The root of the `dtk` command: attaches the groups and turns errors into one line and an exit code."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.exceptions import TyperException

from dtk import __version__
from dtk.cli import doctor, models, repro, scout
from dtk.cli.output import EXIT_INTERRUPTED, json_document
from dtk.errors import DtkError, InputError

__all__ = ["app", "main", "run"]

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


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for a user's mistake or an interrupt."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result: Any = app(args=words, prog_name="dtk", standalone_mode=False)
    except DtkError as error:
        return _report(error, words)
    except TyperException as error:
        return _report(_usage_error(error), words)
    except (KeyboardInterrupt, typer.Abort):
        return _report_interrupt(words)
    except BrokenPipeError:
        # The reader of our stdout has gone (`dtk ... | head`); nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  the last line of defence: report, never a bare traceback
        return _report_internal(error, words)
    return result if isinstance(result, int) else 0


def main() -> NoReturn:
    """Entry point of the console script."""
    sys.exit(run())


def _usage_error(error: TyperException) -> InputError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "dtk"
    return InputError(error.format_message().rstrip("."), hint=f"see '{path} --help'")


def _report(error: DtkError, words: list[str]) -> int:
    if "--verbose" in words or "-v" in words:
        traceback.print_exception(error, file=sys.stderr)
    if "--json" in words:
        sys.stdout.write(json_document(_command_path(words), "error", error=error) + "\n")
    sys.stderr.write(f"dtk: {error}\n")
    return error.exit_code


def _report_interrupt(words: list[str]) -> int:
    if "--json" in words:
        error = DtkError("interrupted")
        sys.stdout.write(json_document(_command_path(words), "error", error=error) + "\n")
    sys.stderr.write("dtk: interrupted\n")
    return EXIT_INTERRUPTED


def _report_internal(cause: Exception, words: list[str]) -> int:
    error = DtkError(
        f"internal error, {type(cause).__name__}: {cause}", hint="run again with --verbose for the traceback"
    )
    error.__cause__ = cause
    return _report(error, words)


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
