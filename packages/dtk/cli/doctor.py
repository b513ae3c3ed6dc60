"""`dtk doctor`: what this machine has and what dtk makes of it."""

from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dtk.cli.doctor_checks import Check, run_checks
from dtk.cli.options import JsonOption, QuietOption, VerboseOption
from dtk.cli.output import Output

__all__ = ["doctor"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(as_json: JsonOption = False, quiet: QuietOption = False, verbose: VerboseOption = False) -> None:
    """Say what this machine has and what dtk makes of it; exit code 1 if something will not work.

    Versions, instruction set, live kernel implementations and why the others are not, threads, memory, GPU,
    Ray, caches. Nothing is started and nothing is fetched.
    """
    from dtk.cli.doctor_facts import collect

    output = Output("doctor", as_json=as_json, quiet=quiet, verbose=verbose)
    facts = collect()
    checks = run_checks(facts)
    failed = any(check.status == "fail" for check in checks)
    output.finish(
        facts | {"checks": [asdict(check) for check in checks]},
        basis="measured",
        status="failed" if failed else "ok",
        show=lambda console: _show(console, facts, checks),
    )
    if failed:
        raise typer.Exit(1)


def _show(console: Console, facts: dict[str, Any], checks: list[Check]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(facts):
        table.add_row(name, value)
    console.print(table)
    if "error" not in facts["kernels"]:
        console.print()
        console.print(_kernel_table(facts["kernels"]["operations"]))
    console.print()
    console.print(_check_table(checks))


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    environment = facts["environment"]
    if "error" in environment:
        return [("dtk", str(facts["installation"].get("version", "?")))]
    cpu, torch, git = environment["cpu"], environment["torch"], environment["git"]
    commit = f" ({git['commit'][:10]}{', changed' if git['dirty'] else ''})" if git else ""
    versions = [f"{name} {version or 'missing'}" for name, version in environment["packages"].items()]
    variables = [f"{name}={value}" for name, value in environment["variables"].items()]
    return [
        ("dtk", f"{environment['dtk']}{commit}, Python {environment['python']}"),
        ("system", f"{environment['os']}, {environment['kernel']}, {environment['machine']}"),
        ("CPU", f"{cpu['model']}: {cpu['available_cores']} of {cpu['logical_cores']} logical cores usable"),
        ("CPU features", " ".join(cpu["flags"]) or "none that matter here"),
        ("torch's choice", f"{torch['cpu_capability']}, {torch['threads']} threads"),
        ("versions", ", ".join(versions)),
        ("variables", ", ".join(variables) or "none of OMP_*, MKL_*, DTK_*, TRITON_* ..."),
        *_cache_rows(facts["caches"]),
    ]


def _cache_rows(caches: dict[str, Any]) -> list[tuple[str, str]]:
    if "error" in caches:
        return []
    rows = []
    for name, folder in caches.items():
        size = folder["size_bytes"]
        amount = "large" if size is None else f"{size / 1e6:.0f} MB"
        state = amount if folder["exists"] else "not there yet"
        rows.append((f"cache: {name.replace('_', ' ')}", f"{folder['path']} ({state})"))
    return rows


def _kernel_table(operations: dict[str, Any]) -> Table:
    names = list(next(iter(operations.values())))
    table = Table("kernel", *names, box=None, pad_edge=False)
    for operation, states in operations.items():
        table.add_row(operation, *(_state(states[name]) for name in names))
    return table


def _state(state: dict[str, Any]) -> Text:
    return Text("live", style="green") if state["live"] else Text(state["reason"], style="dim")


def _check_table(checks: list[Check]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        text = f"{check.message}; {check.hint}" if check.hint else check.message
        table.add_row(Text(check.status, style=_STYLES[check.status]), check.name, text)
    return table
