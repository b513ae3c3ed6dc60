"""What `dtk scout bench kernel` does once its options are known; it imports torch."""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dtk.cli.out_folder import write_json
from dtk.cli.output import Output
from dtk.errors import RunFailedError
from dtk.repro.environment import available_threads, capture_environment
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.kernel import KernelBenchReport, Progress, bench_kernel
from dtk.scout.bench.rest import openmp_wait_policy
from dtk.scout.bench.rows import Row

__all__ = ["Request", "run", "save"]

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
            plot_roofline(report.rows, request.settings, machine, folder)
        if report.scaling is not None:
            plot_scaling(report.scaling, request.settings, machine, folder)
    except OSError as error:
        raise RunFailedError(f"cannot write: {error.strerror}", field="--out", value=str(folder)) from error
