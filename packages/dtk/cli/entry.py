"""Entry point of the console script: ready for signals and broken streams before the rest is imported."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["EXIT_TERMINATED", "main"]

EXIT_TERMINATED = 128 + signal.SIGTERM


def main() -> NoReturn:
    """Run the command line and exit; SIGTERM ends a command as Ctrl-C does, with an exit code of its own."""
    terminated = False

    def terminate(_number: int, _frame: FrameType | None) -> NoReturn:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    code = 128 + signal.SIGINT
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)
        code = _run()
    except KeyboardInterrupt:
        _interrupted_early()
    sys.exit(EXIT_TERMINATED if terminated and code == 128 + signal.SIGINT else code)


def _run() -> int:
    from dtk.cli.streams import prepare_streams

    prepare_streams()
    if os.environ.get("COLUMNS", "1").strip("0") == "":
        # Nothing is zero columns wide; rich would print empty tables.
        del os.environ["COLUMNS"]
    from dtk.cli.main import run

    return run()


def _interrupted_early() -> None:
    """Report an interrupt that came while modules were still being imported."""
    # From here on a second one would only cut the report short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from dtk.cli.document import json_document
    from dtk.errors import DtkError

    words = sys.argv[1:]
    command = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    try:
        if "--json" in words:
            document = json_document(
                " ".join(words[: min(command, 2)]), "error", error=DtkError("interrupted")
            )
            sys.stdout.write(document + "\n")
            sys.stdout.flush()
        sys.stderr.write("dtk: interrupted\n")
    except (OSError, AttributeError):
        # The streams are closed or broken, and were not made good yet.
        pass
