"""What a check is given besides its parameters: seed, threads, progress, what other claims already made."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ProgressReport", "RunContext"]

T = TypeVar("T")


class ProgressReport(Protocol):
    """Takes news of a check's progress; `total` is None where the end is not known."""

    def __call__(self, message: str, completed: float, total: float | None) -> None:
        """Show that `completed` of `total` steps are done."""


class RunContext:
    """One run's context, shared by all its claims.

    Attributes:
        seed: The run's seed; draw from `rng(...)` so that claims do not disturb each other.
        threads: CPU threads that a check may use in all.
        progress: Call it now and then during long checks.
    """

    def __init__(self, *, seed: int, threads: int, progress: ProgressReport | None = None) -> None:
        self.seed = seed
        self.threads = threads
        self.progress: ProgressReport = progress or _no_progress
        self._made: dict[Hashable, Any] = {}
        self._failed: dict[Hashable, Exception] = {}

    def rng(self, name: str) -> np.random.Generator:
        """Return a fresh generator that depends on the seed and `name` alone, not on what ran before."""
        import numpy as np

        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def torch_seed(self, name: str) -> int:
        """Return a seed for a `torch.Generator`, with the same independence as `rng`."""
        return int(self.rng(name).integers(2**63))

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, made once a run: several claims can look at one expensive experiment.

        Args:
            key: Must hold everything that the result depends on, for example ("scout-generation", config).
            make: Makes it. If it raises, later claims with the same key get the same error at once.
        """
        if key in self._failed:
            raise self._failed[key]
        if key not in self._made:
            try:
                self._made[key] = make()
            except Exception as error:
                self._failed[key] = error
                raise
        made: T = self._made[key]
        return made


def _no_progress(message: str, completed: float, total: float | None) -> None:
    """Show nothing."""
