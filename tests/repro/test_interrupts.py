"""The guard of SIGINT, with signals that this process sends itself."""

import signal
import threading
from collections.abc import Iterator

import pytest

from dtk.repro import interrupts
from dtk.repro.interrupts import InterruptGuard


@pytest.fixture(autouse=True)
def _own_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_raises_and_those_right_after_do_not() -> None:
    with InterruptGuard():
        with pytest.raises(KeyboardInterrupt):
            press()
        press()
        press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_swallowed_interrupt_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_PATIENCE_SECONDS", 0.0)
    with InterruptGuard():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                press()


def test_after_hush_none_raises_even_when_the_block_is_left() -> None:
    with InterruptGuard() as guard:
        guard.hush()
        press()
    press()
    # Ignored by the system, for Python's own handlers end before the process does.
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_ignored_sigint_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with InterruptGuard():
        press()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_may_use_it() -> None:
    problems: list[BaseException] = []

    def use() -> None:
        try:
            with InterruptGuard() as guard:
                guard.hush()
        except ValueError as error:
            problems.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert not problems
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
