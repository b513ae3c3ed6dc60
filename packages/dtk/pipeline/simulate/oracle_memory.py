"""What ranks hold over time, as the plain Python simulator keeps it: a list of intervals."""

from collections import Counter
from collections.abc import Hashable
from itertools import groupby
from typing import NamedTuple

from dtk.pipeline.simulate.result import MemoryKind, MemoryStep

__all__ = ["Holdings"]


class _Change(NamedTuple):
    time_ns: int
    rank: int
    kind: MemoryKind
    size: int  # negative where it is freed


class Holdings:
    """What is held from when to when; what is never freed stays to the end."""

    def __init__(self) -> None:
        self._changes: list[_Change] = []
        self._held: dict[Hashable, _Change] = {}

    def hold(self, key: Hashable, rank: int, kind: MemoryKind, size: int, time_ns: int) -> None:
        """Start to hold something; nothing happens where it is held already."""
        if key not in self._held:
            self._held[key] = _Change(time_ns, rank, kind, size)
            self._changes.append(self._held[key])

    def free(self, key: Hashable, time_ns: int) -> None:
        """Free something; nothing happens where it is not held."""
        if held := self._held.pop(key, None):
            self._changes.append(held._replace(time_ns=time_ns, size=-held.size))

    def peak(self, rank: int, kind: MemoryKind | None = None) -> int:
        """Return the most that the rank holds at one time, of one kind or of all."""
        mine = (each for each in self._changes if each.rank == rank and kind in {None, each.kind})
        level = peak = 0
        for _, group in groupby(sorted(mine), key=lambda each: each.time_ns):
            level += sum(each.size for each in group)  # what is freed at this time is there for what is held
            peak = max(peak, level)
        return peak

    def steps(self) -> list[MemoryStep]:
        """Return the levels over time, where they change: by time, then rank, then kind."""
        levels: Counter[tuple[int, MemoryKind]] = Counter()
        order = list(MemoryKind)
        result = []
        changes = sorted(self._changes, key=lambda each: (each.time_ns, each.rank, order.index(each.kind)))
        for (time_ns, rank, kind), group in groupby(changes, key=lambda each: each[:3]):
            if change := sum(each.size for each in group):
                levels[rank, kind] += change
                result.append(MemoryStep(time_ns, rank, kind, levels[rank, kind]))
        return result
