"""What `dtk scout bench kernel` does once its options are known; it imports torch."""

from dataclasses import asdict
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dtk.cli.output import Output
from dtk.repro.environment import available_threads
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.kernel import KernelBenchReport, Progress, bench_kernel
from dtk.scout.bench.rows import Row

__all__ = ["run", "show"]


def run(
    settings: KernelBenchConfig, threads: int | None, seed: int, output: Output
) -> tuple[KernelBenchReport, dict[str, Any]]:
    """Run the benchmark, tell its progress on stderr, and return the report and the data of `--json`."""
    with output.progress() as bar:
        task = bar.add_task("allocating", total=settings.repeats)

        def begin(row: str) -> None:
            output.say(f"timing {row}")
            bar.update(task, description=row, completed=0)

        report = bench_kernel(
            settings,
            threads=threads or available_threads(),
            seed=seed,
            progress=Progress(begin, lambda rounds: bar.update(task, completed=rounds)),
        )
    output.warnings.extend(f"wrong answer: {one}" for one in report.wrong)
    data = {
        "rows": [_row_data(row) for row in report.rows],
        "wrong": report.wrong,
        "config": settings.model_dump(mode="json"),
        "torch": str(torch.__version__),
    }
    return report, data


def _row_data(row: Row) -> dict[str, Any]:
    limits = {"read_limit": row.read_limit, "multiply_add_limit": row.multiply_add_limit}
    return asdict(row) | {name: limit.model_dump(mode="json") for name, limit in limits.items()}


def show(console: Console, report: KernelBenchReport, settings: KernelBenchConfig) -> None:
    """Print the rows as a table for people."""
    table = Table(title="Sparse decode attention, GB/s of K/V (measured here)", title_justify="left")
    for name in ("dtype", "group", "threads", "read", "roofline", "dtk", "share", "torch's best", "speedup"):
        table.add_column(name, justify="right")
    for row in report.rows:
        table.add_row(
            row.dtype,
            str(row.group_size),
            str(row.threads),
            _giga(row.read_bandwidth_bytes_per_s),
            _giga(row.roofline_bytes_per_s),
            _giga(row.kv_bandwidth_bytes_per_s),
            f"{row.fraction_of_roofline:.0%}",
            f"{_giga(row.torch_best_bytes_per_s)} {row.torch_best_name or ''}",
            "-" if row.speedup_over_torch is None else f"{row.speedup_over_torch:.2f}x",
        )
    console.print(table)


def _giga(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e9:.2f}"
