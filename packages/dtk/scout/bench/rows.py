"""One row of the benchmark's result: our kernel against the roofline and against its peers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dtk.hardware.measure import Limit, Probe, limit_of
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.peers import LLAMA_CPP, OURS, TORCH_BEST_OF
from dtk.scout.bench.roofline import kv_bytes, roofline_bytes_per_s
from dtk.scout.bench.timing import Spread, Timings

__all__ = ["ContenderResult", "Limits", "Row", "make_row"]


@dataclass(frozen=True)
class ContenderResult:
    """What one contender reached.

    Attributes:
        median_s: Median of the seconds of a run; `p10_s` and `p90_s` are percentiles, `runs` their number.
        kv_bandwidth_bytes_per_s: Bytes of the selected K/V over the median.
        relative_error: Largest error of an output against float64, over the largest output.
    """

    median_s: float
    p10_s: float
    p90_s: float
    runs: int
    kv_bandwidth_bytes_per_s: float
    relative_error: float


@dataclass(frozen=True)
class Row:
    """Our kernel at one number format and group size.

    Attributes:
        dtype: Number format of K/V and query.
        group_size: Query heads for each KV head.
        threads: Threads of every contender.
        instruction_set: That of our kernel.
        kv_bytes: Bytes of the K/V that a run attends to.
        read_bandwidth_bytes_per_s: The limit of memory, measured in the same rounds.
        multiply_adds_per_s: The limit of fp32 multiply-adds, measured in the same rounds.
        roofline_bytes_per_s: Bytes of K/V a second that the two limits allow.
        bound: Which limit that is.
        kv_bandwidth_bytes_per_s: Bytes of K/V a second of our kernel.
        fraction_of_roofline: That over the roofline, from medians over all rounds.
        fraction_by_round: The spread of the same fraction, worked out within each round.
        torch_best_bytes_per_s: The same of torch's best way; null if none was right and timed.
        torch_best_name: Which way that was.
        speedup_over_torch: Torch's time over ours, from medians.
        llama_cpp_bytes_per_s: The same of llama.cpp; null where it was not timed.
        speedup_over_llama_cpp: llama.cpp's time over ours, from medians.
        read_limit: How the limit of memory was found.
        multiply_add_limit: How the limit of multiply-adds was found.
        contenders: All that was timed.
        other_busy_cores: Cores that other processes kept busy meanwhile; above 0 the figures are too low.
        basis: Always measured.
    """

    dtype: str
    group_size: int
    threads: int
    instruction_set: str | None
    kv_bytes: int
    read_bandwidth_bytes_per_s: float
    multiply_adds_per_s: float
    roofline_bytes_per_s: float
    bound: Literal["memory", "multiply-adds"]
    kv_bandwidth_bytes_per_s: float
    fraction_of_roofline: float
    fraction_by_round: Spread | None
    torch_best_bytes_per_s: float | None
    torch_best_name: str | None
    speedup_over_torch: float | None
    llama_cpp_bytes_per_s: float | None
    speedup_over_llama_cpp: float | None
    read_limit: Limit
    multiply_add_limit: Limit
    contenders: dict[str, ContenderResult]
    other_busy_cores: float
    basis: Literal["measured"] = "measured"


@dataclass(frozen=True)
class Limits:
    """The probes of both limits."""

    read: list[Probe]
    multiply_add: list[Probe]

    @property
    def probes(self) -> list[Probe]:
        """All probes."""
        return [*self.read, *self.multiply_add]

    def roofline(
        self, seconds: Mapping[str, float], group_size: int, dtype: str
    ) -> tuple[float, Limit, Limit]:
        """Return the roofline in bytes/s, and the limits of reads and multiply-adds, from seconds of each."""
        read, multiply_add = limit_of(self.read, seconds), limit_of(self.multiply_add, seconds)
        return roofline_bytes_per_s(read.per_s, multiply_add.per_s, group_size, dtype), read, multiply_add


def make_row(
    config: KernelBenchConfig,
    *,
    dtype: str,
    group_size: int,
    threads: int,
    instruction_set: str | None,
    limits: Limits,
    timings: Timings,
    errors: Mapping[str, float],
    other_busy_cores: float,
) -> Row | None:
    """Work out a row from the times and errors of the contenders; None if ours or a limit was not timed."""
    needed = [OURS, *(probe.name for probe in limits.probes)]
    seconds = {
        name: spread.median for name in (*errors, *needed) if (spread := timings.spread(name)) is not None
    }
    if not all(name in seconds for name in needed):
        return None
    size = kv_bytes(config.batch, config.kv_heads, config.selected_tokens, config.head_dim, dtype)
    roofline, read, multiply_add = limits.roofline(seconds, group_size, dtype)
    results = {name: _result(timings, name, size, errors[name]) for name in errors if name in seconds}
    rates = {name: result.kv_bandwidth_bytes_per_s for name, result in results.items()}
    ours = rates[OURS]
    torch_name = max((name for name in TORCH_BEST_OF if name in rates), key=rates.__getitem__, default=None)
    torch_best = None if torch_name is None else rates[torch_name]
    llama_cpp = rates.get(LLAMA_CPP)
    return Row(
        dtype=dtype,
        group_size=group_size,
        threads=threads,
        instruction_set=instruction_set,
        kv_bytes=size,
        read_bandwidth_bytes_per_s=read.per_s,
        multiply_adds_per_s=multiply_add.per_s,
        roofline_bytes_per_s=roofline,
        bound="memory" if roofline == read.per_s else "multiply-adds",
        kv_bandwidth_bytes_per_s=ours,
        fraction_of_roofline=ours / roofline,
        fraction_by_round=Spread.of(
            [
                size / one[OURS] / limits.roofline(one, group_size, dtype)[0]
                for one in timings.rounds
                if all(name in one for name in needed)
            ]
        ),
        torch_best_bytes_per_s=torch_best,
        torch_best_name=torch_name,
        speedup_over_torch=None if torch_best is None else ours / torch_best,
        llama_cpp_bytes_per_s=llama_cpp,
        speedup_over_llama_cpp=None if llama_cpp is None else ours / llama_cpp,
        read_limit=read,
        multiply_add_limit=multiply_add,
        contenders=results,
        other_busy_cores=other_busy_cores,
    )


def _result(timings: Timings, name: str, size: int, error: float) -> ContenderResult:
    spread = timings.spread(name)
    assert spread is not None
    return ContenderResult(spread.median, spread.p10, spread.p90, spread.count, size / spread.median, error)
