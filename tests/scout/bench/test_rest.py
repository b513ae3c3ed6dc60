"""Waiting for idle threads, on clocks of the test's own."""

import pytest

from dtk.scout.bench.rest import wait_until_idle


class Machine:
    """A process whose threads spin for a while."""

    def __init__(self, spins_until_s: float) -> None:
        self.now = 0.0
        self.spins_until_s = spins_until_s

    def clock(self) -> float:
        return self.now

    def cpu_clock(self) -> float:
        return min(self.now, self.spins_until_s)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("spins_until_s", "waited_s", "idle"),
    [(0.0, 0.005, True), (0.009, 0.015, True), (0.0004, 0.005, True), (9.0, 0.055, False)],
)
def test_the_wait_ends_with_the_spinning(spins_until_s: float, waited_s: float, idle: bool) -> None:
    machine = Machine(spins_until_s)
    assert wait_until_idle(cpu_clock=machine.cpu_clock, clock=machine.clock, sleep=machine.sleep) == idle
    assert machine.now == pytest.approx(waited_s, abs=0.0011)
