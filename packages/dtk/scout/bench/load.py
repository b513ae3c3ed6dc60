"""How busy other processes keep the cores meanwhile: a busy machine hurts some contenders more than others.

OpenMP gives each thread a fixed share of the work and waits for the slowest; our workers take small pieces.
"""

import time
from collections.abc import Callable

import psutil

__all__ = ["OtherLoad", "machine_busy_s", "own_busy_s"]


def machine_busy_s() -> float:
    """Return the seconds that the cores have been busy since the start, what a hypervisor took among them."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(float(getattr(times, name, 0.0)) for name in names)


def own_busy_s() -> float:
    """Return the seconds of CPU time of this process, all threads together."""
    return time.process_time()


class OtherLoad:
    """Counts from its creation on."""

    def __init__(
        self,
        machine: Callable[[], float] = machine_busy_s,
        own: Callable[[], float] = own_busy_s,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clocks = (machine, own, clock)
        self._start = tuple(read() for read in self._clocks)

    def cores(self) -> float:
        """Return how many cores others kept busy on average; 0 where that cannot be told yet."""
        machine, own, wall = (read() - start for read, start in zip(self._clocks, self._start, strict=True))
        return max(machine - own, 0.0) / wall if wall > 0 else 0.0
