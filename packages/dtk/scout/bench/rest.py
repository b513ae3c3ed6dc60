"""Waiting until no thread of this process computes any more.

After a parallel region OpenMP's threads, torch's and llama.cpp's, go on spinning for milliseconds in the hope
of more work. Whoever is timed then has the cores only in part. OMP_WAIT_POLICY=passive lets them sleep.
"""

import os
import time
from collections.abc import Callable

__all__ = ["openmp_threads_sleep", "openmp_wait_policy", "wait_until_idle"]

_STEP_S = 0.005  # a kernel counts CPU time of threads on other cores at its ticks only, every 4 ms or so
_IDLE_SHARE = 0.2  # of a core, while this thread sleeps
_LIMIT_S = 0.05


def openmp_wait_policy() -> str | None:
    """Return what OpenMP's threads were told to do when out of work; None leaves it to the library."""
    return os.environ.get("OMP_WAIT_POLICY", "").lower() or None


def openmp_threads_sleep() -> bool:
    """Return whether OpenMP's threads sleep as soon as they have nothing to do."""
    return openmp_wait_policy() == "passive"


def wait_until_idle(
    *,
    cpu_clock: Callable[[], float] = time.process_time,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Sleep until this process uses hardly any CPU time; return whether that came within 50 ms."""
    start = before = clock()
    while before - start < _LIMIT_S:
        used = cpu_clock()
        sleep(_STEP_S)
        now = clock()
        if cpu_clock() - used < _IDLE_SHARE * (now - before):
            return True
        before = now
    return False
