"""What `dtk zeropp plan` does once its options are known."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from dtk.cli.out_folder import prepare_folder, write_json
from dtk.cli.output import Output
from dtk.cli.table import print_rows
from dtk.cli.zeropp_plan_text import (
    describe_plan,
    describe_problem,
    gib,
    largest_parts,
    plan_cells,
    rival_cells,
)
from dtk.errors import InputError, RunFailedError
from dtk.repro.environment import capture_environment
from dtk.zeropp.planning.config import PlanConfig
from dtk.zeropp.planning.document import plan_data
from dtk.zeropp.planning.export import export_plan
from dtk.zeropp.planning.planner import Plan
from dtk.zeropp.planning.planner import plan as make_plan
from dtk.zeropp.planning.problem import ZEROPP, PlanProblem
from dtk.zeropp.planning.reasons import MEMORY_NAMES, TIME_NAMES, memory_parts, time_parts
from dtk.zeropp.planning.request import make_problem
from dtk.zeropp.planning.search import Progress, SearchResult
from dtk.zeropp.planning.stock import stock_data
from dtk.zeropp.planning.traffic import unit_condition
from dtk.zeropp.planning.uncounted import explain_uncounted

__all__ = [
    "data",
    "describe",
    "nothing_found",
    "prepare",
    "save",
    "search",
    "show",
    "show_check",
    "tell_interrupted",
]

_FIX = "or fix options such as --pp and --micro-batch"

_log = logging.getLogger(__name__)

_PLAN_NAMES = (
    "P",
    "V",
    "U",
    "D",
    "rep-\nlicas",
    "b",
    "M",
    "again",
    "gathered",
    "iteration",
    "more",
    "memory",
    "bubble\nof all",
)
_RIVAL_NAMES = (
    "method",
    "iteration",
    "ZeroPP\nfaster",
    "MFU",
    "memory",
    "bubble\nof all",
    "sent",
    "layout",
)


def describe(settings: PlanConfig) -> PlanProblem:
    """Return the problem of the settings."""
    return make_problem(settings)


def prepare(folder: Path, settings: PlanConfig) -> None:
    """Make the folder, before the work whose results it is to keep."""
    prepare_folder(folder, settings, "zeropp plan", result="plan.json")


def search(problem: PlanProblem, settings: PlanConfig, output: Output) -> Plan:
    """Search, and tell how far it is."""
    output.say(f"{describe_problem(problem)}; Ctrl-C ends the search and keeps the best so far")
    with _telling(output) as tell:
        found = make_plan(
            problem,
            rivals=settings.rivals,
            runners_up=settings.runners_up,
            time_budget_s=settings.time_budget_s,
            progress=tell,
        )
    _warn(found)
    return found


def _warn(found: Plan) -> None:
    """Log what to think about before the figures are relied on, with the methods that it concerns."""
    firsts = {
        name: each.best[0] for name, each in {ZEROPP: found.search, **found.rivals}.items() if each.best
    }
    concerned: dict[str, list[str]] = {}
    for name, first in firsts.items():
        for warning in first.estimate.warnings:
            concerned.setdefault(warning, []).append(name)
    for warning, names in concerned.items():
        _log.warning("%s: %s", ", ".join(names), warning)


@contextmanager
def _telling(output: Output) -> Iterator[Any]:
    with output.progress() as bars:
        tasks: dict[str, Any] = {}

        def tell(method: str, progress: Progress) -> None:
            if method not in tasks:
                tasks[method] = bars.add_task(method, total=progress.num_candidates)
                if not output.stderr.is_terminal and progress.num_candidates:
                    output.say(f"searching {method}: {progress.num_candidates} configurations")
            best = "" if progress.best_s is None else f", best {progress.best_s:.4g} s"
            done = progress.num_candidates - progress.num_left
            bars.update(tasks[method], completed=done, description=f"{method}{best}")

        yield tell


def nothing_found(plan: Plan) -> InputError:
    """Return the error of a search that found no plan."""
    problem = plan.problem
    uncounted = plan.search.uncounted
    if plan.shortfall is None and uncounted is not None:
        message = f"cannot be planned on {problem.machine.name}: {explain_uncounted(uncounted)}"
        hint = "check the rates and sizes of cluster and model"
        return InputError(message, field="--model", value=problem.shape.name, hint=hint)
    if not plan.search.is_complete:
        return InputError(
            f"ended before {not_yet(plan)}", field="--time-budget", hint=f"give more time, {_FIX}"
        )
    where = f"fits nowhere on {problem.machine.name}: the nearest plan, {_misfit(plan)}"
    hint = "allow other options, more --memory or more chips"
    return InputError(where, field="--model", value=problem.shape.name, hint=hint)


def not_yet(plan: Plan) -> str:
    """Say how far a search came that was ended before it found a plan."""
    found = plan.search
    return (
        f"any plan was found: of {found.num_candidates} configurations listed {found.num_simulated} were "
        f"simulated, {found.num_too_large} too large"
    )


def tell_interrupted(plan: Plan, output: Output) -> None:
    """Say on stderr that Ctrl-C came before any plan."""
    output.stderr.print(f"dtk: interrupted before {not_yet(plan)}; let it run longer, {_FIX}", soft_wrap=True)


def _misfit(plan: Plan) -> str:
    """Say of the nearest plan that does not fit why not, and by how much."""
    problem, shortfall = plan.problem, plan.shortfall
    if shortfall is None:
        uncounted = plan.search.uncounted
        return "unknown" if uncounted is None else explain_uncounted(uncounted)
    parts = largest_parts(
        {MEMORY_NAMES[name]: size for name, size in shortfall.memory.size_bytes.items()}, gib
    )
    return (
        f"{describe_plan(shortfall.evaluated)}, needs "
        f"{gib(shortfall.memory.total_bytes)} of memory on pipeline rank {shortfall.memory.rank} where "
        f"{gib(problem.limit_bytes)} may be used, {gib(shortfall.excess_bytes)} too much; {parts}"
    )


def data(plan: Plan, settings: PlanConfig) -> dict[str, Any]:
    """Return the data of `--json`."""
    document = plan_data(plan)
    return document | {
        "basis_of": {"traffic_bytes": "analytic", "unit.meets_condition": "analytic"},
        "config": settings.model_dump(mode="json"),
    }


def show_check(console: Console, plan: Plan) -> None:
    """Print whether the plan fits."""
    best = plan.best
    if best is None:
        console.print(f"does not fit: {_misfit(plan)}", soft_wrap=True)
        return
    spare = best.limit_bytes - best.estimate.peak_bytes
    console.print(
        f"fits: {describe_plan(best)} holds {gib(best.estimate.peak_bytes)} of {gib(best.limit_bytes)}, "
        f"{gib(spare)} to spare; {best.iteration_s:.4g} s an iteration (simulated)",
        soft_wrap=True,
    )


def show(console: Console, plan: Plan) -> None:
    """Print the plan, its reasons, and its rivals."""
    best = plan.best
    assert best is not None
    estimate = best.estimate
    console.print(f"{describe_problem(plan.problem)}", soft_wrap=True)
    found = plan.search
    headline = "best" if found.is_complete else "best so far (not proven)"
    console.print(f"{headline}: {describe_plan(best)}", soft_wrap=True)
    console.print(
        f"{best.iteration_s:.4g} s an iteration (simulated): {estimate.tokens_per_s:,.0f} tokens/s, "
        f"{estimate.model_flop_per_s / 1e12:.4g} TFLOP/s a chip (MFU {estimate.utilisation:.1%})",
        soft_wrap=True,
    )
    _show_fastest(console, plan)
    console.print()
    _show_reasons(console, plan)
    _show_unit(console, plan)
    _show_others(console, plan)
    _show_rivals(console, plan)
    if not found.is_complete:
        text = f"{found.num_simulated} simulated; not searched to the end: the best is not proven"
    else:
        text = f"{found.num_simulated} simulated, the others ruled out by bounds; "
        text += "nothing shorter is in the space"
        if plan.problem.pins.pipeline_parallel is None and plan.problem.machine.num_chips > 1:
            text += (
                ", which has pipelines of 2 ranks or more: --pp 1, plain sharding, is planned only if given"
            )
    console.print(f"{found.num_candidates} configurations of ZeroPP, {text}", soft_wrap=True)


def _show_fastest(console: Console, plan: Plan) -> None:
    """Say which rival is faster than ZeroPP, if one is."""
    best, name = plan.best, plan.fastest_method
    if best is None or name is None or name == ZEROPP:
        return
    rival = plan.rivals[name].best[0]
    so_far = "" if plan.is_proven else " so far"
    console.print(
        f"{name} is faster{so_far}: {rival.iteration_s:.4g} s, "
        f"{1 - rival.iteration_s / best.iteration_s:.1%} less (table of rivals)",
        soft_wrap=True,
    )


def _show_reasons(console: Console, plan: Plan) -> None:
    best = plan.best
    assert best is not None
    times, memory = time_parts(best.estimate), memory_parts(best.estimate)
    rows = [
        [TIME_NAMES[name], f"{value:.4g} s", f"{value / best.iteration_s:.1%}"]
        for name, value in times.seconds.items()
    ]
    print_rows(
        console,
        f"Time of pipeline rank {times.rank}, which computes most (bubble: this rank's)",
        ("part", "time", "share"),
        rows,
    )
    rows = [
        [MEMORY_NAMES[name], gib(size), f"{size / best.limit_bytes:.1%}"]
        for name, size in memory.size_bytes.items()
    ]
    total = memory.total_bytes
    rows.append(["together", gib(total), f"{total / best.limit_bytes:.1%}"])
    title = f"Memory of pipeline rank {memory.rank}, the fullest, of {gib(best.limit_bytes)}"
    print_rows(console, title, ("part", "size", "share"), rows)


def _show_unit(console: Console, plan: Plan) -> None:
    best, choice = plan.best, plan.unit
    if best is None or choice is None:
        return
    rows = [
        [
            f"{row.unit}{' *' if row.unit == choice.chosen else ''}",
            f"{row.evaluated.iteration_s:.4g} s",
            gib(row.evaluated.estimate.peak_bytes),
            "yes" if row.evaluated.fits else "no",
            "yes" if row.meets_condition else "no",
        ]
        for row in choice.rows
    ]
    print_rows(
        console,
        "Other units (2sUb > 9h: the paper's rule; times and GiB: dtk's own)",
        ("U", "iteration", "memory", "fits", "2sUb > 9h"),
        rows,
    )
    units, weights = unit_condition(
        plan.problem.shape.hidden_size,
        plan.problem.sequence_tokens,
        choice.chosen,
        best.candidate.micro_batch,
    )
    sign, less = (">", "less") if units > weights else ("<=", "no less")
    console.print(
        f"2sUb = {units} {sign} 9h = {weights} (analytic): by the paper's rule it communicates {less} than "
        f"tensor parallelism, which takes U >= {choice.least_by_condition}",
        soft_wrap=True,
    )
    console.print()


def _show_others(console: Console, plan: Plan) -> None:
    best = plan.best
    if best is not None and plan.search.best[1:]:
        rows = [plan_cells(each, best) for each in plan.search.best]
        proven = "simulated" if plan.search.is_complete else "simulated; not proven: ended early"
        print_rows(console, f"The best and its runners-up ({proven})", _PLAN_NAMES, rows)
    if (shortfall := plan.shortfall) is not None and best is not None:
        gain = 1 - shortfall.evaluated.iteration_s / best.iteration_s
        speed = f"{gain:.1%} less time" if gain > 0 else "no less time"
        console.print(
            f"nearest that does not fit: {describe_plan(shortfall.evaluated)} would take {speed}, but needs "
            f"{gib(shortfall.memory.total_bytes)} on pipeline rank {shortfall.memory.rank}, "
            f"{gib(shortfall.excess_bytes)} too much",
            soft_wrap=True,
        )
        console.print()


def _show_rivals(console: Console, plan: Plan) -> None:
    best = plan.best
    if best is None or not (plan.rivals or plan.left_out):
        return
    rows = [rival_cells(ZEROPP, plan.search, best)]
    rows += [rival_cells(name, found, best) for name, found in plan.rivals.items() if found.best]
    at = "each at its best" if plan.is_proven else "each at the best found, not all proven"
    title = f"Rivals, {at} (simulated; sent by a rank in an iteration)"
    print_rows(console, title, _RIVAL_NAMES, rows)
    for name, found in plan.rivals.items():
        if not found.best:
            console.print(f"{name}: {_nothing_of(found)}", soft_wrap=True)
    for name, reason in plan.left_out.items():
        console.print(f"{name} is left out: {reason}", soft_wrap=True)


def _nothing_of(found: SearchResult) -> str:
    if found.is_complete:
        return "nothing fits"
    if found.uncounted is not None:
        return f"cannot be planned: {explain_uncounted(found.uncounted)}"
    return "not searched to the end, nothing found yet"


def save(folder: Path, document: dict[str, Any], plan: Plan, settings: PlanConfig) -> None:
    """Write the plan, its schedule, recipes and timelines.

    Raises:
        RunFailedError: If the folder cannot be written.
    """
    best = plan.best
    try:
        resolved = {"settings": settings.model_dump(mode="json"), "environment": capture_environment()}
        stock = {} if best is None else {"torchtitan": stock_data(best)}
        write_json(folder, "plan.json", document | stock | resolved)
        if best is not None:
            export_plan(best, folder, title=describe_plan(best))
    except OSError as error:
        raise RunFailedError(f"cannot write: {error.strerror}", field="--out", value=str(folder)) from error
