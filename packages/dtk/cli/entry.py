"""Entry point of the console script: ready for signals and broken streams before the rest is imported.

Its own imports are only what the interpreter has loaded anyway: an interrupt may come at any moment.
"""

import os
import sys

__all__ = ["Terminated", "main"]

_EXIT_INTERRUPTED = 128 + 2
_EXIT_TERMINATED = 128 + 15


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: every command ends as on Ctrl-C, keeping what it has."""


def main() -> None:
    """Run the command line and exit; after SIGTERM with the exit code of a process that it has ended."""
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True
        raise Terminated

    code = _EXIT_INTERRUPTED
    try:
        import signal

        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)
        code = _run()
    except KeyboardInterrupt:
        _report_early_interrupt()
    sys.exit(_EXIT_TERMINATED if terminated and code == _EXIT_INTERRUPTED else code)


def _run() -> int:
    from dtk.cli.interrupts import interrupts_held_back
    from dtk.cli.streams import prepare_streams

    prepare_streams()
    with interrupts_held_back():
        # Its compiled part imports datetime, and ends in a panic if an interrupt comes meanwhile.
        import pydantic_core  # noqa: F401
    if os.environ.get("COLUMNS", "1").strip("0") == "":
        # Nothing is zero columns wide; rich would print empty tables.
        del os.environ["COLUMNS"]
    from dtk.cli.main import run

    return run()


def _report_early_interrupt() -> None:
    """Report an interrupt that came while modules were still being imported."""
    import signal

    # From here on a second one would only cut the report short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    from dtk.cli.document import json_document
    from dtk.errors import DtkError

    words = sys.argv[1:]
    options = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    # Which words are the command's is not known yet; only those of `scout bench` are more than two.
    longest = 3 if words[:2] == ["scout", "bench"] else 2
    command = " ".join(words[: min(options, longest)])
    try:
        sys.stderr.write("dtk: interrupted\n")
        if "--json" in words:
            sys.stdout.write(json_document(command, "error", error=DtkError("interrupted")) + "\n")
            sys.stdout.flush()
    except (OSError, AttributeError):
        # A stream is closed or broken, and was not made good yet.
        pass
