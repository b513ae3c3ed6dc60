"""The tables of `dtk scout bench kernel` for people: on narrow terminals one block a row instead."""

from typing import TYPE_CHECKING

from rich.console import Console

from dtk.cli.table import print_rows

if TYPE_CHECKING:
    from dtk.scout.bench.kernel import KernelBenchReport
    from dtk.scout.bench.rows import Row
    from dtk.scout.bench.scaling import Scaling
    from dtk.scout.bench.timing import Spread

__all__ = ["show"]

_LIMIT_NAMES = (
    "dtype",
    "group\nsize",
    "reads",
    "roofline",
    "dtk",
    "of the\nroofline",
    "10th..90th\npercentile",
)
_PEER_NAMES = (
    "dtype",
    "group\nsize",
    "dtk",
    "torch's\nbest",
    "torch's\nbest way",
    "dtk over\ntorch",
    "llama.cpp",
    "dtk over\nllama.cpp",
)
_SCALING_NAMES = ("selected\ntokens", "context\ntokens", "ms", "10th..90th\npercentile", "GB/s")


def show(console: Console, report: "KernelBenchReport") -> None:
    """Print the results: ours against the limits, against the peers, and how our time grows."""
    threads = _threads(report.rows[0].threads if report.rows else 0)
    title = f"Sparse decode attention, GB/s of selected K/V, {threads} (measured here)"
    print_rows(console, title, _LIMIT_NAMES, [_limit_cells(row) for row in report.rows])
    print_rows(console, "The same, against others", _PEER_NAMES, [_peer_cells(row) for row in report.rows])
    if report.llama_cpp != "timed":
        console.print(f"llama.cpp: {report.llama_cpp}", soft_wrap=True)
    if report.scaling is not None:
        _show_scaling(console, report.scaling)


def _limit_cells(row: "Row") -> list[str]:
    return [
        row.dtype,
        str(row.group_size),
        _giga(row.read_bandwidth_bytes_per_s),
        _giga(row.roofline_bytes_per_s),
        _giga(row.kv_bandwidth_bytes_per_s),
        f"{row.fraction_of_roofline:.0%}",
        _percent(row.fraction_by_round),
    ]


def _peer_cells(row: "Row") -> list[str]:
    return [
        row.dtype,
        str(row.group_size),
        _giga(row.kv_bandwidth_bytes_per_s),
        _giga(row.torch_best_bytes_per_s),
        (row.torch_best_name or "-").removeprefix("torch_"),
        _times(row.speedup_over_torch),
        _giga(row.llama_cpp_bytes_per_s),
        _times(row.speedup_over_llama_cpp),
    ]


def _show_scaling(console: Console, scaling: "Scaling") -> None:
    title = f"Time of a call, {scaling.dtype}, group size {scaling.group_size}, {_threads(scaling.threads)}"
    cells = [
        [
            str(point.selected_tokens),
            str(point.context_tokens),
            f"{1e3 * point.median_s:.3f}",
            f"{1e3 * point.p10_s:.3f}..{1e3 * point.p90_s:.3f}",
            _giga(point.kv_bandwidth_bytes_per_s),
        ]
        for series in (scaling.by_selected_tokens, scaling.by_context_tokens)
        for point in series
    ]
    print_rows(console, f"{title} (measured here)", _SCALING_NAMES, cells)
    slope, ratio = scaling.log_log_slope, scaling.context_ratio
    if slope is not None:
        console.print(f"slope of log time over log selected tokens: {slope:.3f} (1 is linear)")
    if ratio is not None:
        console.print(f"largest over smallest time across the contexts: {ratio:.2f}")


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _percent(spread: "Spread | None") -> str:
    return "-" if spread is None else f"{100 * spread.p10:.0f}..{100 * spread.p90:.0f}%"


def _giga(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e9:.2f}"
