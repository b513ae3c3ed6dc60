"""What `dtk scout bench kernel` does once its options are known; it imports torch."""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dtk.cli.out_folder import write_json
from dtk.cli.output import Output
from dtk.errors import RunFailedError
from dtk.repro.environment import available_threads, capture_environment
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.kernel import KernelBenchReport, Progress, bench_kernel
from dtk.scout.bench.rest import openmp_wait_policy
from dtk.scout.bench.rows import Row
from dtk.scout.bench.scaling import Scaling
from dtk.scout.bench.timing import Spread

__all__ = ["Request", "run", "save", "show"]

_log = logging.getLogger(__name__)

_QUIET_CORES = 0.1  # that others may keep busy


@dataclass(frozen=True)
class Request:
    """One `dtk scout bench kernel`, all options resolved."""

    settings: KernelBenchConfig
    threads: int | None
    seed: int

    @property
    def resolved_threads(self) -> int:
        """The threads of every contender."""
        return self.threads or available_threads()


def run(request: Request, output: Output) -> tuple[KernelBenchReport, dict[str, Any]]:
    """Run the benchmark, tell its progress on stderr, and return the report and the data of `--json`."""
    if request.resolved_threads > available_threads():
        _log.warning(
            "%d threads share %d cores: no figure is the machine's",
            request.resolved_threads,
            available_threads(),
        )
    with output.progress() as bar:
        task = bar.add_task("", total=request.settings.repeats)

        def begin(part: str) -> None:
            output.say(f"timing {part}")
            bar.update(task, description=part, completed=0)

        report = bench_kernel(
            request.settings,
            threads=request.resolved_threads,
            seed=request.seed,
            progress=Progress(begin, lambda rounds: bar.update(task, completed=rounds)),
        )
    for wrong in report.wrong:
        _log.warning("wrong answer, not timed: %s", wrong)
    _warn_if_busy(report)
    return report, _data(report, request)


def _warn_if_busy(report: KernelBenchReport) -> None:
    busy = max((row.other_busy_cores for row in report.rows), default=0.0)
    if busy > _QUIET_CORES:
        _log.warning(
            "other processes kept up to %.1f cores busy meanwhile: no figure is this machine's, and those of "
            "torch and llama.cpp suffer most",
            busy,
        )


def _data(report: KernelBenchReport, request: Request) -> dict[str, Any]:
    return {
        "rows": [_row_data(row) for row in report.rows],
        "scaling": None if report.scaling is None else asdict(report.scaling),
        "wrong": report.wrong,
        "llama_cpp": report.llama_cpp,
        "threads": request.resolved_threads,
        "omp_wait_policy": openmp_wait_policy(),
        "config": request.settings.model_dump(mode="json"),
    }


def _row_data(row: Row) -> dict[str, Any]:
    limits = {"read_limit": row.read_limit, "multiply_add_limit": row.multiply_add_limit}
    return asdict(row) | {name: limit.model_dump(mode="json") for name, limit in limits.items()}


def save(folder: Path, data: dict[str, Any], report: KernelBenchReport, request: Request) -> None:
    """Write the result, then the resolved request and the plots into `folder`.

    Raises:
        RunFailedError: If the folder cannot be written.
    """
    try:
        # First of all: the rest takes seconds, in which much can happen.
        write_json(folder, "result.json", data)
        environment = capture_environment()
        machine = environment["cpu"]["model"]
        resolved = {
            "settings": request.settings.model_dump(mode="json"),
            "threads": request.resolved_threads,
            "seed": request.seed,
            "environment": environment,
        }
        write_json(folder, "request.json", resolved)
        from dtk.scout.bench.plot import plot_roofline, plot_scaling

        if report.rows:
            plot_roofline(report.rows, machine, folder)
        if report.scaling is not None:
            plot_scaling(report.scaling, machine, folder)
    except OSError as error:
        raise RunFailedError(f"cannot write: {error.strerror}", field="--out", value=str(folder)) from error


def show(console: Console, report: KernelBenchReport) -> None:
    """Print the results as tables for people."""
    threads = report.rows[0].threads if report.rows else 0
    title = f"Sparse decode attention, GB/s of selected K/V, {threads} threads (measured here)"
    table = Table(title=title, title_justify="left")
    names = ("dtype", "group", "reads", "roofline", "dtk", "of roofline", "by round", "torch", "dtk/torch")
    for name in (*names, "torch's way", "llama.cpp"):
        table.add_column(name, justify="right")
    for row in report.rows:
        table.add_row(
            row.dtype,
            str(row.group_size),
            _giga(row.read_bandwidth_bytes_per_s),
            _giga(row.roofline_bytes_per_s),
            _giga(row.kv_bandwidth_bytes_per_s),
            f"{row.fraction_of_roofline:.0%}",
            _percent(row.fraction_by_round),
            _giga(row.torch_best_bytes_per_s),
            "-" if row.speedup_over_torch is None else f"{row.speedup_over_torch:.2f}",
            (row.torch_best_name or "-").removeprefix("torch_"),
            _giga(row.llama_cpp_bytes_per_s),
        )
    console.print(table)
    if report.llama_cpp != "timed":
        console.print(f"llama.cpp: {report.llama_cpp}", soft_wrap=True)
    if report.scaling is not None:
        _show_scaling(console, report.scaling)


def _show_scaling(console: Console, scaling: Scaling) -> None:
    title = f"Time of a call, {scaling.dtype}, group size {scaling.group_size}, {scaling.threads} threads"
    table = Table(title=f"{title} (measured here)", title_justify="left")
    for name in ("selected tokens", "of context tokens", "ms", "10th..90th percentile", "GB/s"):
        table.add_column(name, justify="right")
    for series in (scaling.by_selected_tokens, scaling.by_context_tokens):
        for point in series:
            table.add_row(
                str(point.selected_tokens),
                str(point.context_tokens),
                f"{1e3 * point.median_s:.3f}",
                f"{1e3 * point.p10_s:.3f}..{1e3 * point.p90_s:.3f}",
                _giga(point.kv_bandwidth_bytes_per_s),
            )
        table.add_section()
    console.print(table)
    slope, ratio = scaling.log_log_slope, scaling.context_ratio
    if slope is not None:
        console.print(f"slope of log time over log selected tokens: {slope:.3f} (1 is linear)")
    if ratio is not None:
        console.print(f"largest over smallest time across the contexts: {ratio:.2f}")


def _percent(spread: Spread | None) -> str:
    return "-" if spread is None else f"{100 * spread.p10:.0f}..{100 * spread.p90:.0f}%"


def _giga(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e9:.2f}"
