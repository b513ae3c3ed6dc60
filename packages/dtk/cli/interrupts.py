"""Imports that an interrupt must not cut short.

Torch's own start-up code, interrupted in the middle, swallows the interrupt or leaves behind a half-loaded
library that cannot be loaded again.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts_held_back"]


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Let a first Ctrl-C or SIGTERM wait for the end of the block; a second one comes through at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }

    def hold(number: int, frame: FrameType | None) -> None:
        if waiting:
            handlers[signal.Signals(number)](number, frame)
        waiting.append(number)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if waiting:
        handlers[signal.Signals(waiting[0])](waiting[0], None)
