"""`dtk repro`: run the papers' claims on this machine, list them, make the report again."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dtk.cli.options import JsonOption, OutOption, QuietOption, VerboseOption
from dtk.cli.output import Output, json_document
from dtk.errors import DtkError, InputError, NotTestableError, RunFailedError
from dtk.repro.values import MAX_SEED, MAX_THREADS

if TYPE_CHECKING:
    from dtk.repro.folder import RunFolder
    from dtk.repro.interrupts import InterruptGuard
    from dtk.repro.result import RunConfig
    from dtk.repro.runner import Outcome

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Run the papers' claims here: table, report, exit code.")

ClaimsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CLAIM",
        help="Papers (scout) or claims (scout.kv-bytes). Default: all. 'dtk repro list' shows them.",
    ),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Only claims that take minutes, and those that nothing can test yet.")
]
ResumeOption = Annotated[
    str | None,
    typer.Option("--resume", metavar="DIR", help="Go on with this run, or with the newest one: latest."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        max=MAX_SEED,
        help="Seed of all random choices. Default: 0.",
        rich_help_panel="Common options",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=MAX_THREADS,
        help="CPU threads in all. Default: the cores of this machine.",
        rich_help_panel="Common options",
    ),
]


@app.command("run")
def run(
    claims: ClaimsArgument = None,
    quick: QuickOption = False,
    resume: ResumeOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run claims, print the table, write report.html.

    Results, plots and environment go to runs/TIME-HASH (or below --out).
    Without --out the report is also ./report.html.

    Exit code: 0 all testable claims pass, 1 a claim is off,
    3 nothing testable here, 4 the run failed, 130 interrupted.
    """
    output = Output("repro run", as_json=as_json, quiet=quiet, verbose=verbose)
    _require_current_folder()
    from dtk.repro.interrupts import InterruptGuard
    from dtk.repro.runner import exit_code
    from dtk.repro.session import Request, open_run

    request = Request(claims or (), quick, resume, out or Path("runs"), seed, threads)
    target = Path("report.html") if out is None else None
    with InterruptGuard() as guard:
        with open_run(request, ("dtk", *sys.argv[1:])) as (folder, config):
            outcome = _run_claims(output, folder, config)
            outcome, talk = _write_report(folder, outcome, target, guard)
        _finish(output, folder, config, outcome)
        for line in talk:
            output.say(line)
    raise typer.Exit(exit_code(outcome))


@app.command("list")
def list_claims(
    claims: ClaimsArgument = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List the claims with what they cost and need."""
    output = Output("repro list", as_json=as_json, quiet=quiet, verbose=verbose)
    from dtk.repro.catalogue import load_papers, select_claims
    from dtk.repro.table import show_catalogue

    chosen = select_claims(load_papers(), claims or (), quick=quick)
    rows = [claim.model_dump(mode="json") | {"paper": claim.paper} for claim in chosen]
    output.finish({"claims": rows}, show=lambda console: show_catalogue(console, chosen))


@app.command("report")
def report(
    run_dir: Annotated[str, typer.Argument(metavar="RUN_DIR", help="A run's folder, or latest.")],
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Make the report of a run again, from its folder alone."""
    output = Output("repro report", as_json=as_json, quiet=quiet, verbose=verbose)
    _require_current_folder()
    from dtk.repro.folder import find_run
    from dtk.repro.report import write_report

    path = write_report(find_run(run_dir, out or Path("runs")))
    output.finish({"report": str(path)}, show=lambda console: console.print(str(path), soft_wrap=True))


def _require_current_folder() -> None:
    """Refuse to start in a folder that is gone, where every relative path fails with a riddle."""
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            "the current folder is gone or cannot be read", hint="change to a folder that exists"
        ) from error


def _run_claims(output: Output, folder: "RunFolder", config: "RunConfig") -> "Outcome":
    """Run the claims, and show how it goes."""
    from dtk.repro.catalogue import total_minutes
    from dtk.repro.context import RunContext
    from dtk.repro.progress import RunDisplay
    from dtk.repro.runner import run_claims

    minutes = max(round(total_minutes(config.claims)), 1)
    number = f"{len(config.claims)} claim{'s' if len(config.claims) > 1 else ''}"
    with output.progress() as progress:
        output.say(f"{number}, about {minutes} min; run folder: {folder.path}")
        display = RunDisplay(output.say, progress)
        context = RunContext(seed=config.seed, threads=config.threads, progress=display.progress)
        return run_claims(folder, config, context, display)


def _write_report(
    folder: "RunFolder", outcome: "Outcome", target: Path | None, guard: "InterruptGuard"
) -> tuple["Outcome", list[str]]:
    """Write the report, and copy it to `target`; return the outcome, which may fail here, and what to say.

    Whatever goes wrong, the results are there, and the caller shows them.
    """
    from dtk.repro.report import write_report
    from dtk.repro.session import copy_report

    if outcome.interrupted:
        guard.hush()
    talk = []
    try:
        report = write_report(folder)
        talk.append(f"report: {report}")
        if target is not None:
            copied = copy_report(report, target)
            talk.insert(
                0, f"report: {target}" if copied else f"./{target} is not one of ours and stays as it is"
            )
    except DtkError as error:
        outcome = outcome._replace(error=outcome.error or error)
    except KeyboardInterrupt:
        guard.hush()
        outcome = outcome._replace(interrupted=True)
    return outcome, talk


def _finish(output: Output, folder: "RunFolder", config: "RunConfig", outcome: "Outcome") -> None:
    """Print the result: the table, or the JSON object, which also says if the run broke off."""
    from dtk.repro.result import count_statuses, result_row
    from dtk.repro.runner import ExitCode, exit_code
    from dtk.repro.table import show_results

    results = outcome.results
    data: dict[str, Any] = {
        "claims": [result_row(claim, results[claim.id]) for claim in config.claims if claim.id in results],
        "counts": count_statuses(results.values()),
        "run_dir": str(folder.path),
        "report": str(folder.report_path),
    }
    error = _run_error(folder, outcome, complete=len(results) == len(config.claims))
    if error is not None and output.as_json:
        document = json_document(output.command, "error", data=data, warnings=output.warnings, error=error)
        output.stdout.file.write(document + "\n")
    else:
        status = "ok" if exit_code(outcome) is ExitCode.PASSED else "failed"
        output.finish(data, status=status, show=lambda console: show_results(console, config.claims, results))
    if error is not None:
        output.stderr.print(f"dtk: {error}", soft_wrap=True, markup=False)


def _run_error(folder: "RunFolder", outcome: "Outcome", *, complete: bool) -> DtkError | None:
    """Return what kept the run from judging its claims, if anything did."""
    from dtk.repro.runner import ExitCode, exit_code

    again = f"dtk repro run --resume {shlex.quote(str(folder.path))}"
    match exit_code(outcome):
        case ExitCode.INTERRUPTED:
            also = f"; {outcome.error}" if outcome.error is not None else ""
            return DtkError(f"interrupted; what is done is kept{also}", hint=f"go on with: {again}")
        case ExitCode.RUN_FAILED if outcome.error is not None:
            kept = "all claims have results" if complete else "what is done is kept"
            return RunFailedError(f"{outcome.error}; {kept}", hint=f"once that is mended: {again}")
        case ExitCode.RUN_FAILED:
            failures = [result.failure for result in outcome.results.values() if result.failure]
            message = next(failure.message for failure in failures if failure.kind == "run")
            return RunFailedError(message, hint=f"try again with: {again}")
        case ExitCode.NOTHING_TESTABLE:
            return NotTestableError("none of these claims can be tested here")
        case _:
            return None
