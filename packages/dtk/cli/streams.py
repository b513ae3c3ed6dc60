"""Standard streams that are closed, full or gone: what a command may rely on, and how it ends without them.

stderr only carries talk: without it a command runs on, and its exit code and result stay what they are.
stdout carries the result: without it the command has failed (exit code 4), unless the reader has gone, as
`head` does when it has seen enough (141, as of a process that SIGPIPE has ended).
"""

import errno
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from dtk.errors import RunFailedError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["EXIT_BROKEN_PIPE", "lost_stdout", "prepare_streams", "stdout_works"]

EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE


def prepare_streams() -> None:
    """Put something in place of each closed stream, and make stderr swallow what cannot be written."""
    _fill_closed_descriptors()
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, "r", closefd=False))
    # A closed one takes no byte: a result that nobody can get must not count as delivered.
    sys.stdout = _writer(_Noting(1, "w", closefd=False), sys.stdout)
    sys.stderr = _writer(_Forgiving(2, "w", closefd=False), sys.stderr, errors="backslashreplace")


def _writer(raw: io.FileIO, old: TextIO | None, *, errors: str | None = None) -> io.TextIOWrapper:
    """Return a text stream on `raw` that is set up as `old` was."""
    wanted = old if isinstance(old, io.TextIOWrapper) else None
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=wanted.encoding if wanted else "utf-8",
        errors=errors or (wanted.errors if wanted else None),
        line_buffering=errors is not None or (wanted is not None and wanted.line_buffering),
        write_through=wanted is not None and wanted.write_through,
    )


def _fill_closed_descriptors() -> None:
    """Open the null device on closed descriptors, or the next file that is opened would be a stream."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is this one. Opened for reading, so writing the result fails.
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)


class _Noting(io.FileIO):
    """A file that remembers that it could not be written, whoever has caught the error since."""

    has_failed = False

    def write(self, data: "ReadableBuffer", /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError:
            self.has_failed = True
            raise


class _Forgiving(io.FileIO):
    """A file whose every write succeeds, whether the bytes arrive or not."""

    def write(self, data: "ReadableBuffer", /) -> int:
        size = memoryview(data).nbytes
        try:
            written = super().write(data)
        except OSError:
            return size
        # None: it would block, on a pipe that its reader has set so.
        return size if written is None else written


def stdout_works() -> bool:
    """Return whether what was written so far has left the process."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return not getattr(raw, "has_failed", False)


def lost_stdout(cause: OSError) -> int:
    """Give up on stdout, say so in one line unless its reader has gone, and return the exit code."""
    try:
        # Python flushes at exit: what is left in the buffer must have somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stdout.flush()
    except OSError:
        pass
    if cause.errno == errno.EPIPE:
        return EXIT_BROKEN_PIPE
    sys.stderr.write(f"dtk: cannot write the result to stdout: {cause.strerror or cause}\n")
    return RunFailedError.exit_code
