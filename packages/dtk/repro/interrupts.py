"""Ctrl-C during a run: the first press breaks it off, the presses after it do not cost the last message.

A second SIGINT used to hit whatever was at work then: the report, or the line that says how to resume.
"""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Final, Self

__all__ = ["InterruptGuard"]

_PATIENCE_SECONDS: Final = 2.0


class InterruptGuard:
    """Holds SIGINT from a run's first claim until its result is printed.

    A first SIGINT raises KeyboardInterrupt. Those of the next two seconds are dropped; a later one raises
    again, for something may have swallowed the first. After `hush` all are dropped, and stay so: the process
    has only its result left to print. SIGINT is left alone outside the main thread, and where it is ignored.
    """

    def __init__(self) -> None:
        self._raised_at = float("-inf")
        self._hushed = False
        self._holding = False

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupted)
            self._holding = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holding and not self._hushed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def hush(self) -> None:
        """Drop every SIGINT from here on."""
        self._hushed = True
        if self._holding:
            # Not our handler: Python would put the default in its place while it shuts down.
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._hushed or now - self._raised_at < _PATIENCE_SECONDS:
            return
        self._raised_at = now
        raise KeyboardInterrupt
