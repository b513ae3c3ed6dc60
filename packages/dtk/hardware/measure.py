"""This machine's own figures: how fast it reads memory and how fast it multiplies and adds.

Each figure is measured in two ways, by a loop of our own and by torch's best-known call for it (a sum, a
product of matrices), and the larger one is the limit: nobody's code has beaten both. A `Probe` does its work
once, so that a benchmark can take turns between probes and what it compares with them.

It leaves out other memory levels, writes, and formats other than fp32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pydantic
import torch

from dtk_kernels import limits
from dtk_kernels.workers import Workers

__all__ = [
    "Limit",
    "Probe",
    "evict_caches",
    "last_level_cache_bytes",
    "limit_of",
    "multiply_add_probes",
    "read_buffer",
    "read_buffer_bytes",
    "read_probes",
]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_USUAL_CACHE_BYTES = 32 * 2**20
_CACHE_MULTIPLE = 8  # the buffer, in last-level caches: what is left of the last pass does not count
_MULTIPLY_ADDS = 400_000_000  # for each thread; some ten milliseconds
_MATRIX_SIZE = 1536


@dataclass(frozen=True)
class Probe:
    """One way to reach a limit.

    Attributes:
        name: `native_read`, `torch_sum`, `native_multiply_add` or `torch_matmul`.
        quantity: Bytes or multiply-adds of one run.
        run: Does it once.
    """

    name: str
    quantity: float
    run: Callable[[], object]


class Limit(pydantic.BaseModel):
    """A rate that nothing on this machine was seen to exceed.

    Attributes:
        per_s: Bytes or multiply-adds per second, the larger one of `by_probe`.
        probe: The name of the probe that reached it.
        by_probe: What each probe reached.
        basis: Always measured.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    per_s: float
    probe: str
    by_probe: dict[str, float]
    basis: Literal["measured"] = "measured"


def limit_of(probes: list[Probe], seconds: Mapping[str, float]) -> Limit:
    """Return the limit from the (median) seconds of each probe."""
    rates = {probe.name: probe.quantity / seconds[probe.name] for probe in probes}
    best = max(rates, key=lambda name: rates[name])
    return Limit(per_s=rates[best], probe=best, by_probe=rates)


def last_level_cache_bytes() -> int:
    """Return the size of the largest cache that a core sees; 32 MiB where the system does not tell."""
    sizes = []
    for file in _CACHES.glob("index*/size"):
        text = file.read_text().strip()
        if text.endswith("K") and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) * 1024)
    return max(sizes, default=_USUAL_CACHE_BYTES)


def read_buffer_bytes() -> int:
    """Return how large a buffer must be for reads of it to come from memory."""
    return _CACHE_MULTIPLE * max(last_level_cache_bytes(), _USUAL_CACHE_BYTES)


def read_buffer() -> torch.Tensor:
    """Return such a buffer, fp32, in the kind of memory that torch gives K/V too."""
    return torch.ones(read_buffer_bytes() // 4, dtype=torch.float32)


def read_probes(workers: Workers, buffer: torch.Tensor) -> list[Probe]:
    """Return the ways to read memory. Torch uses the threads it has been given: as many as the workers.

    Raises:
        RuntimeError: The compiled module is missing.
    """
    size = buffer.numel() * buffer.element_size()
    return [
        Probe("native_read", size, lambda: limits.read(workers, buffer)),
        Probe("torch_sum", size, lambda: buffer.sum()),
    ]


def multiply_add_probes(workers: Workers) -> list[Probe]:
    """Return the ways to multiply and add in fp32; threads as in `read_probes`.

    Raises:
        RuntimeError: The compiled module is missing.
    """
    wanted = workers.num_threads * _MULTIPLY_ADDS
    count = limits.multiply_add(workers, wanted)
    a, b = torch.ones(2, _MATRIX_SIZE, _MATRIX_SIZE).unbind()
    product = torch.empty_like(a)
    return [
        Probe("native_multiply_add", count, lambda: limits.multiply_add(workers, wanted)),
        Probe("torch_matmul", _MATRIX_SIZE**3, lambda: torch.mm(a, b, out=product)),
    ]


def evict_caches(workers: Workers, buffer: torch.Tensor) -> None:
    """Fill the caches with a part of the buffer, so that what comes next reads memory."""
    enough = 2 * max(last_level_cache_bytes(), _USUAL_CACHE_BYTES) // 4
    # The end of it: a read of the whole buffer, which begins at the start, must find nothing there.
    limits.read(workers, buffer[-enough:])
