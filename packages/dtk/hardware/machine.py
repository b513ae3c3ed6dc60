"""This machine's own figures in a table: reads, copies, products of matrices by size, the loopback.

Each figure is the median of rounds in which all take turns, so that what disturbs the machine for a while
disturbs all alike. Torch's calls are measured as they are, with the threads that torch has; the compiled
reader of `dtk_kernels` stands beside torch's sum where it is built.

It leaves out accelerators, disks, and networks beyond this machine.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Literal

import psutil
import pydantic
import torch

from dtk.hardware.loopback import Loopback
from dtk.hardware.measure import Probe, read_buffer_bytes, read_probes
from dtk_kernels.workers import Workers

__all__ = ["GEMM_SIZES", "MachineFigure", "measure_machine"]

GEMM_SIZES = (64, 256, 512, 1024, 2048)
_MESSAGE_BYTES = 64
_STREAM_BYTES = 64 * 2**20
_BUSY_PERCENT = 20
_GEMM_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_PROBE_SIZE = 128
_MAX_GEMM_SECONDS = 0.5  # where bf16 is emulated, larger products would take minutes
_MIN_SECONDS = 0.01  # a run of a probe repeats its work until about that long
_log = logging.getLogger(__name__)


class MachineFigure(pydantic.BaseModel):
    """One measured figure.

    Attributes:
        name: What was done: `read torch_sum`, `gemm fp32 1024`.
        unit: What `median` and the others count; seconds are those of one go.
        median: The median of the rounds.
        low: The lowest of the rounds.
        high: The highest of the rounds.
        rounds: How many there were.
        basis: Always measured.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    name: str
    unit: Literal["bytes_per_s", "flop_per_s", "s"]
    median: float
    low: float
    high: float
    rounds: int
    basis: Literal["measured"] = "measured"


def measure_machine(
    *,
    rounds: int = 7,
    gemm_sizes: Sequence[int] = GEMM_SIZES,
    buffer_bytes: int | None = None,
    stream_bytes: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[MachineFigure]:
    """Measure this machine, with the threads that torch has been given.

    Args:
        rounds: Times that each figure is taken.
        gemm_sizes: Rows and columns of the square matrices that are multiplied.
        buffer_bytes: What is read and copied; by default far more than the caches hold.
        stream_bytes: What is sent over the loopback in one go; by default 64 MiB.
        clock: Seconds that only grow.

    Raises:
        OSError: If nobody may listen on this machine's loopback.
    """
    _warn_of_others()
    stream = stream_bytes or _STREAM_BYTES
    with ExitStack() as stack, torch.inference_mode():
        workers = stack.enter_context(Workers(torch.get_num_threads()))
        loopback = stack.enter_context(Loopback())
        probes: list[tuple[Literal["bytes_per_s", "flop_per_s", "s"], Probe]] = [
            *(("bytes_per_s", probe) for probe in _memory_probes(workers, buffer_bytes)),
            *(("flop_per_s", probe) for probe in _gemm_probes(gemm_sizes)),
            ("s", Probe("loopback round trip", 1, lambda: loopback.send(_MESSAGE_BYTES))),
            ("bytes_per_s", Probe("loopback stream", stream, lambda: loopback.send(stream))),
        ]
        times = _take_turns([probe for _, probe in probes], rounds, clock)
    return [_figure(unit, probe, times[probe.name]) for unit, probe in probes]


def _warn_of_others() -> None:
    busy = psutil.cpu_percent(interval=0.2)
    if busy > _BUSY_PERCENT:
        _log.warning("other work keeps %d %% of the cores busy: no figure is the machine's best", busy)


def _memory_probes(workers: Workers, buffer_bytes: int | None) -> list[Probe]:
    size = buffer_bytes or read_buffer_bytes()
    source = torch.ones(size // 4, dtype=torch.float32)
    target = torch.zeros_like(source)
    reads = read_probes(workers, source)
    try:
        reads[0].run()
    except RuntimeError as error:
        _log.warning("no compiled reader, torch's alone is measured: %s", error)
        del reads[0]
    probes = [Probe(f"read {probe.name}", probe.quantity, probe.run) for probe in reads]
    # A copy reads what it writes: both count.
    return [*probes, Probe("copy torch_copy", 2 * size, lambda: target.copy_(source))]


def _gemm_probes(sizes: Sequence[int]) -> list[Probe]:
    """Return a product of each size in fp32 and bf16, but no bf16 ones that would take too long here."""
    probes = [_gemm_probe("fp32", size) for size in sizes]
    small = _gemm_probe("bf16", _PROBE_SIZE)
    small.run()
    seconds_per_flop = _seconds(small, 1, time.perf_counter) / small.quantity
    for size in sizes:
        if 2 * size**3 * seconds_per_flop <= _MAX_GEMM_SECONDS:
            probes.append(_gemm_probe("bf16", size))
        else:
            _log.warning("bf16 products of %d rows are left out: they would take too long here", size)
    return probes


def _gemm_probe(precision: str, size: int) -> Probe:
    a, b = torch.ones(2, size, size, dtype=_GEMM_DTYPES[precision]).unbind()
    product = torch.empty_like(a)
    return Probe(f"gemm {precision} {size}", 2 * size**3, lambda: torch.mm(a, b, out=product))


def _take_turns(probes: Sequence[Probe], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Return the seconds of one go of each probe, in each round."""
    repeats = {}
    for probe in probes:
        probe.run()
        repeats[probe.name] = max(1, int(_MIN_SECONDS / max(_seconds(probe, 1, clock), 1e-9)))
    times: dict[str, list[float]] = {probe.name: [] for probe in probes}
    for _ in range(rounds):
        for probe in probes:
            times[probe.name].append(_seconds(probe, repeats[probe.name], clock))
    return times


def _seconds(probe: Probe, repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        probe.run()
    return (clock() - start) / repeats


def _figure(
    unit: Literal["bytes_per_s", "flop_per_s", "s"], probe: Probe, seconds: list[float]
) -> MachineFigure:
    values = seconds if unit == "s" else [probe.quantity / one for one in seconds]
    return MachineFigure(
        name=probe.name,
        unit=unit,
        median=median(values),
        low=min(values),
        high=max(values),
        rounds=len(values),
    )
