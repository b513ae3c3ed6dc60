"""What `dtk zeropp schedule` does once its options are known."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from dtk.cli.out_folder import write_json
from dtk.cli.output import Output
from dtk.cli.table import print_rows
from dtk.cli.zeropp_errors import naming_options, option_of
from dtk.errors import InputError, RunFailedError
from dtk.pipeline.action import TRANSFER_KINDS
from dtk.pipeline.draw import timeline_of
from dtk.pipeline.lowering import add_transfers
from dtk.pipeline.simulate import simulate_tasks
from dtk.pipeline.simulate.result import IdleCause
from dtk.pipeline.slots import draw_tasks
from dtk.pipeline.text import schedule_to_text
from dtk.repro.environment import capture_environment
from dtk.timeline import Timeline
from dtk.timeline import save as save_timeline
from dtk.timeline.axis import format_time
from dtk.timeline.files import write_atomically
from dtk.timeline.saving import SUFFIXES
from dtk.zeropp.config import ZeroppConfig
from dtk.zeropp.formulas import FormulaCheck
from dtk.zeropp.report import ScheduleReport, report_file, report_schedule

__all__ = ["Request", "check_timeline", "run", "save", "show", "write_timeline"]

_log = logging.getLogger(__name__)

_QUANTITIES: Final = {
    "idle_ns": "idle time of a rank",
    "peak_activation_chunks": "chunks held",
    "gathers": "gathers of a rank",
}
_STDIN: Final = Path("-")
_DRAWING_COLUMNS = 120  # in JSON, where no terminal says how wide it is


@dataclass(frozen=True)
class Request:
    """One `dtk zeropp schedule`, all options resolved.

    Attributes:
        settings: Sizes, costs and the schedule's name.
        seed: Of the search.
        file: Read from there instead.
        flags: The options that were given, by setting; None for the others.
        text: Print the actions, and nothing else.
        draw: Draw the schedule.
    """

    settings: ZeroppConfig
    seed: int
    file: Path | None
    flags: Mapping[str, Any]
    text: bool
    draw: bool


def run(request: Request, output: Output) -> tuple[ScheduleReport, dict[str, Any]]:
    """Make or read the schedule; return the report and the data of `--json`."""
    if request.file is None:
        with naming_options():
            report = report_schedule(
                request.settings,
                seed=request.seed,
                searching=lambda: output.say("searching; Ctrl-C ends it and keeps the best so far"),
            )
    else:
        text = _read(request.file)
        name = "stdin" if request.file == _STDIN else request.file.name
        with naming_options(name):
            report = report_file(request.settings, text, name)
        _check_sizes(report, request.flags)
    for warning in report.warnings:
        _log.warning("%s", warning)
    return report, _data(report, request)


def _read(file: Path) -> str:
    try:
        if file == _STDIN:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        if file.exists() and not file.is_file():
            hint = "name a file, or - for standard input"
            raise InputError("is not a regular file", field="--file", value=str(file), hint=hint)
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.reason if isinstance(error, UnicodeDecodeError) else error.strerror
        raise InputError(f"cannot read the file: {reason}", field="--file", value=str(file)) from error


def _check_sizes(report: ScheduleReport, flags: Mapping[str, Any]) -> None:
    schedule = report.schedule
    sizes = {
        "pp": schedule.num_ranks,
        "chunks": report.num_chunks,
        "micro_batches": schedule.num_microbatches,
    }
    for name, found in sizes.items():
        if flags.get(name) not in (None, found):
            raise InputError(f"the file says {found}", field=option_of(name), value=flags[name])


def _data(report: ScheduleReport, request: Request) -> dict[str, Any]:
    schedule, simulation = report.schedule, report.simulation
    data: dict[str, Any] = {
        "schedule": schedule.name,
        "pp": schedule.num_ranks,
        "chunks": report.num_chunks,
        "micro_batches": schedule.num_microbatches,
        "rank_of_stage": list(schedule.rank_of_stage),
        "options": dict(schedule.settings),
        "makespan_s": _seconds(simulation.makespan_ns),
        "compute_s_by_rank": [_seconds(time) for time in simulation.compute_ns],
        "idle_s_by_rank": [_seconds(time) for time in simulation.idle_total_ns],
        "idle_s_by_cause_by_rank": [
            {cause.value: _seconds(time) for cause, time in causes.items()} for causes in simulation.idle_ns
        ],
        "bubble_ratio": float(simulation.bubble_ratio),
        "peak_activation_chunks_by_rank": list(simulation.peak_activation_chunks),
        "gathers_by_rank": list(simulation.gathers),
        "reduce_scatters_by_rank": list(simulation.reduce_scatters),
        "lower_bound_s": _seconds(report.lower_bound_ns),
        "gap_to_lower_bound": report.gap,
        "formulas": [asdict(check) | {"agrees": check.agrees} for check in report.formulas],
        "search": _search_data(report),
        "basis_of": {"lower_bound_s": "analytic", "formulas.expected": "analytic"},
        "seed": request.seed,
        "config": request.settings.model_dump(mode="json"),
    }
    if request.text:
        data["text"] = _text(report).splitlines()
    if request.draw:
        data["drawing"] = _drawing(report, _DRAWING_COLUMNS).plain.splitlines()
    return data


def _search_data(report: ScheduleReport) -> dict[str, Any] | None:
    search = report.search
    if search is None:
        return None
    return {
        "memory_chunks": report.memory_chunks,
        "makespan_s": _seconds(search.makespan_ns),
        "lower_bound_s": _seconds(search.lower_bound_ns),
        "gap_to_lower_bound": report.gap_within_memory,
        "proven": report.proven,
        "evaluations": search.evaluations,
        "interrupted": search.interrupted,
    }


def _seconds(time_ns: int) -> float:
    return time_ns / 1e9


def _text(report: ScheduleReport) -> str:
    return schedule_to_text(report.schedule.compute_only())


def _complete_text(report: ScheduleReport) -> str:
    schedule = report.schedule
    listed = any(action.kind in TRANSFER_KINDS for row in schedule.actions for action in row)
    return schedule_to_text(schedule if listed else add_transfers(schedule))


def _title(report: ScheduleReport) -> str:
    schedule = report.schedule
    unit = schedule.settings.get("unit")
    sizes = f"P={schedule.num_ranks}, V={report.num_chunks}, M={schedule.num_microbatches}"
    return f"{schedule.name}, {sizes}" + ("" if unit is None else f", U={unit}")


def _drawing(report: ScheduleReport, width: int) -> Text:
    return draw_tasks(simulate_tasks(report.schedule, report.costs), title=_title(report), width=width)


def show(console: Console, report: ScheduleReport, request: Request) -> None:
    """Print what the report says."""
    if request.text:
        console.file.write(_text(report))
        return
    if request.draw:
        console.print(_drawing(report, console.width), soft_wrap=True)
        console.print()
    simulation = report.simulation
    bubble = f"ranks stand idle {float(simulation.bubble_ratio):.2%} of it (the bubble)"
    console.print(
        f"{_title(report)}: {format_time(simulation.makespan_ns)}, {bubble} (simulated)", soft_wrap=True
    )
    _show_ranks(console, report)
    _show_bound(console, report)
    for check in report.formulas:
        console.print(_formula_line(check), soft_wrap=True)
    if not report.formulas:
        console.print("no closed formula holds for these sizes and times: the simulation stands alone")


def _show_ranks(console: Console, report: ScheduleReport) -> None:
    simulation = report.simulation
    causes = [cause for cause in IdleCause if any(cause in idle for idle in simulation.idle_ns)]
    names = ["rank", "compute", "idle", *(cause.value for cause in causes)]
    names += ["chunks\nheld", "gathers", "reductions"]
    rows = [
        [
            str(rank),
            format_time(simulation.compute_ns[rank]),
            _time_or_dash(simulation.idle_total_ns[rank]),
            *(_time_or_dash(idle.get(cause, 0)) for cause in causes),
            str(simulation.peak_activation_chunks[rank]),
            str(simulation.gathers[rank]),
            str(simulation.reduce_scatters[rank]),
        ]
        for rank, idle in enumerate(simulation.idle_ns)
    ]
    print_rows(console, "Idle time by cause; chunks held as activations, from F to W", names, rows)


def _time_or_dash(time_ns: int) -> str:
    return format_time(time_ns) if time_ns else "-"


def _show_bound(console: Console, report: ScheduleReport) -> None:
    bound = format_time(report.lower_bound_ns)
    tight = "" if report.gap else ": with these stages on these ranks nothing is shorter"
    console.print(f"lower bound {bound} (analytic), gap {report.gap:.2%}{tight}", soft_wrap=True)
    if (search := report.search) is None:
        return
    found = (
        "proven: nothing is shorter" if report.proven else f"{report.gap_within_memory:.2%} above it at most"
    )
    ended = "; Ctrl-C ended the search" if search.interrupted else ""
    console.print(
        f"within {report.memory_chunks} chunk activations a rank the bound is "
        f"{format_time(search.lower_bound_ns)}: {found} ({search.evaluations} orders timed{ended})",
        soft_wrap=True,
    )
    if report.planning_note:
        console.print(report.planning_note, soft_wrap=True)


def _formula_line(check: FormulaCheck) -> str:
    what = _QUANTITIES[check.quantity]
    written = format_time if check.quantity == "idle_ns" else str
    verdict = "the simulation agrees" if check.agrees else f"the simulation says {written(check.simulated)}"
    return f"formula for the {what} (analytic): {check.formula} = {written(check.expected)}; {verdict}"


def check_timeline(path: Path) -> None:
    """Refuse, before the work, a file that no timeline could be written to.

    Raises:
        InputError: If its name says no format, or its folder does not exist.
    """
    if not path.name.lower().endswith(SUFFIXES):
        hint = f"end the name in {', '.join(SUFFIXES)}"
        raise InputError("no format of that name", field="--timeline", value=str(path), hint=hint)
    if not path.parent.is_dir():
        raise InputError("the folder does not exist", field="--timeline", value=str(path))


def _timeline(report: ScheduleReport) -> Timeline:
    tasks = simulate_tasks(report.schedule, report.costs)
    return timeline_of(tasks, title=_title(report), num_ranks=report.schedule.num_ranks)


def write_timeline(report: ScheduleReport, path: Path) -> None:
    """Write the timeline of a report, in the format that the name says."""
    save_timeline(_timeline(report), path)


def save(folder: Path, data: dict[str, Any], report: ScheduleReport, request: Request) -> None:
    """Write the result, the schedule with and without what is added to it, and the timeline.

    Raises:
        RunFailedError: If the folder cannot be written.
    """
    try:
        # First of all: the rest takes a while.
        write_json(folder, "result.json", data)
        resolved = {
            "settings": request.settings.model_dump(mode="json"),
            "seed": request.seed,
            "file": None if request.file is None else str(request.file),
            "environment": capture_environment(),
        }
        write_json(folder, "request.json", resolved)
        write_atomically(folder / "schedule.csv", _text(report).encode())
        write_atomically(folder / "schedule_with_communication.csv", _complete_text(report).encode())
        timeline = _timeline(report)
        save_timeline(timeline, folder / "timeline.json.gz")
        save_timeline(timeline, folder / "timeline.svg")
    except OSError as error:
        raise RunFailedError(f"cannot write: {error.strerror}", field="--out", value=str(folder)) from error
