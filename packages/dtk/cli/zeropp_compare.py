"""What `dtk zeropp compare` does once its options are known."""

import logging
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Console

from dtk.cli.out_folder import write_json
from dtk.cli.output import Output
from dtk.cli.table import print_rows
from dtk.cli.zeropp_errors import naming_options
from dtk.errors import RunFailedError
from dtk.repro.environment import capture_environment
from dtk.timeline.axis import format_time, format_times
from dtk.zeropp.comparison import ComparedSchedule, Comparison, compare_schedules
from dtk.zeropp.config import ZeroppConfig

__all__ = ["Request", "run", "save", "show"]

_log = logging.getLogger(__name__)

_NAMES = (
    "schedule",
    "V",
    "makespan",
    "bubble",
    "chunks\nheld",
    "chunks\ngathered",
    "chunks\nreduced",
    "over\nbound",
    "over\nbest",
)


@dataclass(frozen=True)
class Request:
    """One `dtk zeropp compare`, all options resolved."""

    settings: ZeroppConfig
    seed: int


def run(request: Request, output: Output) -> tuple[Comparison, dict[str, Any]]:
    """Compare; return the comparison and the data of `--json`."""
    with naming_options():
        comparison = compare_schedules(
            request.settings, seed=request.seed, progress=lambda name: output.say(f"simulating {name}")
        )
    for name, reason in comparison.left_out.items():
        _log.warning("%s is left out: %s", name, reason)
    for warning in dict.fromkeys(warning for row in comparison.rows for warning in row.report.warnings):
        _log.warning("%s", warning)
    return comparison, _data(comparison, request)


def _data(comparison: Comparison, request: Request) -> dict[str, Any]:
    return {
        "chunks": comparison.num_chunks,
        "lower_bound_s": comparison.lower_bound_ns / 1e9,
        "rows": [_row_data(comparison, row) for row in comparison.rows],
        "left_out": dict(comparison.left_out),
        "basis_of": {"lower_bound_s": "analytic", "rows.lower_bound_s": "analytic"},
        "seed": request.seed,
        "config": request.settings.model_dump(mode="json"),
    }


def _row_data(comparison: Comparison, row: ComparedSchedule) -> dict[str, Any]:
    simulation = row.report.simulation
    search = row.report.search
    return {
        "schedule": row.name,
        "chunks": row.num_chunks,
        "chunks_per_own_chunk": _number(row.scale),
        "makespan_s": simulation.makespan_ns / 1e9,
        "idle_s_by_rank": [time / 1e9 for time in simulation.idle_total_ns],
        "bubble_ratio": float(simulation.bubble_ratio),
        "peak_activation_chunks": _number(row.peak_activation_chunks),
        "gathered_chunks": _number(row.gathered_chunks),
        "reduced_chunks": _number(row.reduced_chunks),
        "lower_bound_s": row.report.lower_bound_ns / 1e9,
        "gap_to_lower_bound": comparison.gap(row),
        "times_best": comparison.against_best(row),
        "proven_within_memory": None if search is None else row.report.proven,
        "note": row.note,
    }


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def show(console: Console, comparison: Comparison) -> None:
    """Print the table and what is to be said about its rows."""
    makespans = format_times([row.report.simulation.makespan_ns for row in comparison.rows])
    rows = [
        [
            row.name,
            str(row.num_chunks),
            makespan,
            f"{float(row.report.simulation.bubble_ratio):.2%}",
            f"{_number(row.peak_activation_chunks):g}",
            f"{_number(row.gathered_chunks):g}",
            f"{_number(row.reduced_chunks):g}",
            f"{comparison.gap(row):.2%}",
            f"{comparison.against_best(row) - 1:.2%}",
        ]
        for row, makespan in zip(comparison.rows, makespans, strict=True)
    ]
    title = "Chunks of the rank with most; held as activations, from F to W (simulated)"
    print_rows(console, title, _NAMES, rows)
    bound = format_time(comparison.lower_bound_ns)
    console.print(
        f"lower bound {bound} (analytic): no schedule on these placements of stages is shorter",
        soft_wrap=True,
    )
    for row in comparison.rows:
        if row.note:
            console.print(f"{row.name}: {row.note}", soft_wrap=True)
        if row.report.search is not None:
            console.print(f"{row.name}: {_search_note(row)}", soft_wrap=True)
    for name, reason in comparison.left_out.items():
        console.print(f"{name} is left out: {reason}", soft_wrap=True)


def _search_note(row: ComparedSchedule) -> str:
    search = row.report.search
    if search is None:
        return ""
    gap = f"{row.report.gap_within_memory:.2%} above the lower bound at most"
    found = "nothing is shorter" if row.report.proven else gap
    ended = "; Ctrl-C ended the search" if search.interrupted else ""
    if row.report.planning_note:
        ended += f"; {row.report.planning_note}"
    return f"within {row.report.memory_chunks} chunk activations a rank, {found}{ended}"


def save(folder: Path, data: dict[str, Any], comparison: Comparison, request: Request) -> None:
    """Write the result, the resolved request and a plot.

    Raises:
        RunFailedError: If the folder cannot be written.
    """
    try:
        write_json(folder, "result.json", data)
        resolved = {
            "settings": request.settings.model_dump(mode="json"),
            "seed": request.seed,
            "environment": capture_environment(),
        }
        write_json(folder, "request.json", resolved)
        from dtk.zeropp.plot import plot_comparison

        plot_comparison(comparison, request.settings, folder)
    except OSError as error:
        raise RunFailedError(f"cannot write: {error.strerror}", field="--out", value=str(folder)) from error
