"""What `Workers` stands on: the compiled thread pool, or one Python thread in its place."""

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch

__all__ = ["Handle", "PendingWork", "PythonThread"]


class Handle(Protocol):
    """One submitted piece of work."""

    def done(self) -> bool:
        """Return whether it has ended."""

    def wait(self, take_part: bool) -> None:
        """Block until it has ended, perhaps taking part in it; raise what the worker raised."""


class PendingWork:
    """The tensors that threads may still read or write, held until their work has ended.

    The compiled threads know addresses only, and a caller may drop a `Job` at any time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: deque[_Entry] = deque()
        self._unknown: list[_Entry] = []  # Ctrl-C came while they were submitted: perhaps they run

    def start(self, submit: Callable[[], Handle], tensors: tuple[torch.Tensor, ...]) -> Handle:
        """Submit work; the tensors are held from before it can start."""
        entry = _Entry(tensors)
        with self._lock:
            self._entries.append(entry)
        try:
            entry.handle = submit()
        except BaseException as error:
            with self._lock:
                if entry in self._entries:  # not after a `clear` of closing workers
                    self._entries.remove(entry)
                    if not isinstance(error, Exception):
                        self._unknown.append(entry)
            raise
        self.release_ended()
        return entry.handle

    def release_ended(self) -> None:
        """Let go of the tensors of ended work (in order: later work waits for earlier)."""
        with self._lock:
            while self._entries and (handle := self._entries[0].handle) is not None and handle.done():
                self._entries.popleft()

    def clear(self) -> None:
        """Let go of all tensors; only when no thread works any more."""
        with self._lock:
            self._entries.clear()
            self._unknown.clear()


class _Entry:
    def __init__(self, tensors: tuple[torch.Tensor, ...]) -> None:
        self.tensors = tensors
        self.handle: Handle | None = None


class PythonThread:
    """One Python thread that runs functions in order."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dtk-worker")
        self._process = os.getpid()

    def submit(self, function: Callable[[], None]) -> Handle:
        """Run `function` after all that was submitted before."""
        if self._process != os.getpid():
            raise RuntimeError("these workers belong to the process before the fork")
        try:
            return _FutureHandle(self._executor.submit(function))
        except RuntimeError as error:
            raise RuntimeError("these workers are closed") from error

    def close(self) -> None:
        """Finish what was submitted, then end the thread; in a forked child there is none to end."""
        if self._process == os.getpid():
            self._executor.shutdown(wait=True)


class _FutureHandle:
    def __init__(self, future: Future[None]) -> None:
        self._future = future
        self._process = os.getpid()

    def done(self) -> bool:
        self._require_own_process()
        return self._future.done()

    def wait(self, take_part: bool) -> None:
        self._require_own_process()
        self._future.result()

    def _require_own_process(self) -> None:
        if self._process != os.getpid():
            raise RuntimeError("this job belongs to the process before the fork")
