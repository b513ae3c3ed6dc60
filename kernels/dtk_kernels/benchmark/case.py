"""One case of a benchmark: a call of ours, torch's ways to the same results, and the least traffic of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["DTYPES", "Case"]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def _nothing() -> None:
    pass


def _all(result: Any) -> Any:
    return result


@dataclass(frozen=True)
class Case:
    """One operation at one size.

    Attributes:
        operation: Name of the public function.
        size: Sizes in words.
        dtype: `fp32`, `fp16` or `bf16`.
        read_bytes: Bytes that must be read, at least.
        written_bytes: Bytes that must be written, at least.
        ours: The call that is timed; returns its results.
        peers: torch's ways to the same results, by name.
        reference: Returns the sampled results by the reference implementation.
        sample: Which part of a result is checked: all of a large one would take the reference too long.
        reset: Undoes what an in-place operation did.
        peer_tolerance: How far peers may be off, as a fraction of the largest result: their sums are in the
            data's precision.
    """

    operation: str
    size: str
    dtype: str
    read_bytes: int
    written_bytes: int
    ours: Callable[[], Any]
    peers: Mapping[str, Callable[[], Any]]
    reference: Callable[[], Any]
    sample: Callable[[Any], Any] = _all
    reset: Callable[[], Any] = _nothing
    peer_tolerance: float = 1e-5

    def check(self) -> None:
        """Raise AssertionError where our or a peer's results are not the reference's."""
        self.reset()
        wanted = self.reference()
        first = wanted[0] if isinstance(wanted, tuple) else wanted
        scale = float(first.abs().max()) if first.is_floating_point() else 0.0
        for name, call in {"ours": self.ours, **self.peers}.items():
            self.reset()
            tolerance = (1e-6 if name == "ours" else self.peer_tolerance) * scale
            torch.testing.assert_close(
                self.sample(call()), wanted, rtol=0, atol=tolerance,
                msg=lambda text, name=name: f"{self.operation}, {self.size}, {name}: {text}",  # type: ignore[misc]
            )  # fmt: skip
