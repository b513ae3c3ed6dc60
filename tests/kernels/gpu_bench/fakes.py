"""A bench on a CPU, with clocks that tests set."""

from collections.abc import Callable
from typing import Any

import torch

from dtk_kernels.gpu_bench import bench
from dtk_kernels.gpu_bench.timing import Budget, one_by_one

__all__ = ["Clock", "make_bench"]

CPU = torch.device("cpu")


class Clock:
    """Makes every call once and says that it takes a second; wall time passes as it is told."""

    def __init__(self, wall_s_a_call: float = 0.0) -> None:
        self.now_s = 0.0
        self._wall_s = wall_s_a_call
        self._known: dict[int, Callable[[], object]] = {}

    def __call__(self) -> float:
        return self.now_s

    def time(self, call: Callable[[], object]) -> float:
        if id(call) not in self._known:  # interpreted kernels are slow, and once is enough
            self._known[id(call)] = call
            call()
        self.now_s += self._wall_s
        return 1.0


def make_bench(clock: Clock, lines: list[str], **settings: Any) -> bench.Bench:
    arguments: dict[str, Any] = {
        "device": CPU,
        "budget": Budget(100.0, clock),
        "clock": clock,
        "capture": one_by_one,
        "cache_bytes": 0,
        "limits": bench.Limits(4096, CPU),
        "say": lines.append,
        "rounds": 5,
    }
    return bench.Bench(**arguments | settings)
