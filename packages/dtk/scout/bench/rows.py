"""One row of the benchmark's result: our kernel against the roofline and against its peers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dtk.hardware.measure import Limit
from dtk.scout.bench.peers import OURS, TORCH_BEST_OF
from dtk.scout.bench.roofline import roofline_bytes_per_s
from dtk.scout.bench.timing import Spread

__all__ = ["ContenderResult", "Row", "make_row"]


@dataclass(frozen=True)
class ContenderResult:
    """What one contender reached.

    Attributes:
        median_s: Median of the seconds of a run; `p10_s` and `p90_s` are the percentiles.
        runs: How many runs were timed.
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
        bound: Which limit it is.
        kv_bandwidth_bytes_per_s: Bytes of K/V a second of our kernel.
        fraction_of_roofline: That over the roofline.
        torch_best_bytes_per_s: The same of torch's best way; null if none was right and timed.
        torch_best_name: Which way that was.
        speedup_over_torch: Torch's time over ours.
        llama_cpp_bytes_per_s: The same of llama.cpp; null if it is not installed or has no such format.
        speedup_over_llama_cpp: llama.cpp's time over ours.
        read_limit: How the limit of memory was found.
        multiply_add_limit: How the limit of multiply-adds was found.
        contenders: All that was timed.
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
    torch_best_bytes_per_s: float | None
    torch_best_name: str | None
    speedup_over_torch: float | None
    llama_cpp_bytes_per_s: float | None
    speedup_over_llama_cpp: float | None
    read_limit: Limit
    multiply_add_limit: Limit
    contenders: dict[str, ContenderResult]
    basis: Literal["measured"] = "measured"


def make_row(
    *,
    dtype: str,
    group_size: int,
    threads: int,
    instruction_set: str | None,
    kv_bytes: int,
    read_limit: Limit,
    multiply_add_limit: Limit,
    spreads: Mapping[str, Spread],
    errors: Mapping[str, float],
) -> Row:
    """Work out a row from the times and errors of the contenders, ours among them."""
    results = {
        name: ContenderResult(
            spread.median_s, spread.p10_s, spread.p90_s, spread.runs, kv_bytes / spread.median_s, errors[name]
        )
        for name, spread in spreads.items()
    }
    rates = {name: result.kv_bandwidth_bytes_per_s for name, result in results.items()}
    ours = rates[OURS]
    torch_name = max((name for name in TORCH_BEST_OF if name in rates), key=rates.__getitem__, default=None)
    torch_best = None if torch_name is None else rates[torch_name]
    llama_cpp = rates.get("llama_cpp")
    roof = roofline_bytes_per_s(read_limit.per_s, multiply_add_limit.per_s, group_size, dtype)
    return Row(
        dtype=dtype,
        group_size=group_size,
        threads=threads,
        instruction_set=instruction_set,
        kv_bytes=kv_bytes,
        read_bandwidth_bytes_per_s=read_limit.per_s,
        multiply_adds_per_s=multiply_add_limit.per_s,
        roofline_bytes_per_s=roof,
        bound="memory" if roof == read_limit.per_s else "multiply-adds",
        kv_bandwidth_bytes_per_s=ours,
        fraction_of_roofline=ours / roof,
        torch_best_bytes_per_s=torch_best,
        torch_best_name=torch_name,
        speedup_over_torch=None if torch_best is None else ours / torch_best,
        llama_cpp_bytes_per_s=llama_cpp,
        speedup_over_llama_cpp=None if llama_cpp is None else ours / llama_cpp,
        read_limit=read_limit,
        multiply_add_limit=multiply_add_limit,
        contenders=results,
    )
