"""How every command talks: the result on stdout, everything else on stderr, `--json` for machines."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dtk.cli.document import EXIT_INTERRUPTED, JSON_SCHEMA, json_document

__all__ = ["EXIT_INTERRUPTED", "JSON_SCHEMA", "Output", "json_document"]

_LIBRARY_LOGGERS = ("dtk", "dtk_kernels")
_MIN_COLUMNS = 40  # below that, tables lose their columns; a real terminal as narrow wraps the lines


class _WarningCollector(logging.Handler):
    """Keeps the warnings that the libraries log, for the `warnings` list of `--json`."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self._messages:
            self._messages.append(message)


class _LineHandler(logging.Handler):
    """Writes each message as one line, however long: where no person watches, a script reads."""

    def __init__(self, level: int, console: Console) -> None:
        super().__init__(level)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(f"{record.levelname:<8} {self.format(record)}", soft_wrap=True)


class Output:
    """One command's voice. Create it first thing in a command body, call `finish` last.

    Attributes:
        stdout: Where the result goes (rich markup and highlighting are off: a pipe gets plain text).
        stderr: Where talk, progress and warnings go.
        warnings: What the run warned about so far.
    """

    def __init__(
        self, command: str, *, as_json: bool = False, quiet: bool = False, verbose: bool = False
    ) -> None:
        self.command = command
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self.warnings: list[str] = []
        self.stdout = _console(stderr=False)
        self.stderr = _console(stderr=True)
        self._install_log_handlers()

    def _install_log_handlers(self) -> None:
        for name in _LIBRARY_LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers.clear()
            logger.propagate = False
            logger.setLevel(logging.DEBUG if self.verbose else logging.INFO)
            level = logging.DEBUG if self.verbose else logging.ERROR if self.quiet else logging.WARNING
            logger.addHandler(self._log_handler(level))
            logger.addHandler(_WarningCollector(self.warnings))

    def _log_handler(self, level: int) -> logging.Handler:
        if self.stderr.is_terminal:
            return RichHandler(level, console=self.stderr, show_path=False, show_time=False)
        return _LineHandler(level, self.stderr)

    def say(self, message: RenderableType) -> None:
        """Tell the person something on stderr; silent under `--quiet`."""
        if not self.quiet:
            self.stderr.print(message, soft_wrap=isinstance(message, str))

    def stream(self, text: str) -> None:
        """Write a piece of generated text as it comes: stdout, or stderr where stdout is for JSON."""
        console = self.stderr if self.as_json else self.stdout
        if not (self.as_json and self.quiet):
            console.file.write(text)
            console.file.flush()

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Yield a rich progress display on stderr; it draws only on a terminal and never under `--quiet`."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        disable = self.quiet or not self.stderr.is_terminal
        with Progress(
            *columns, TimeElapsedColumn(), console=self.stderr, transient=True, disable=disable
        ) as progress:
            yield progress

    def finish(
        self,
        data: Mapping[str, Any],
        *,
        basis: str | None = None,
        status: str = "ok",
        show: Callable[[Console], None] | None = None,
    ) -> None:
        """Print the result: one JSON object under `--json`, else whatever `show` writes to stdout."""
        if self.as_json:
            document = json_document(self.command, status, basis=basis, data=data, warnings=self.warnings)
            self.stdout.file.write(document + "\n")
        elif show is not None:
            show(self.stdout)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False)
    if console.width < _MIN_COLUMNS:
        console.width = _MIN_COLUMNS
    return console
