"""The claims table of the terminal: one line a claim, then what is off or untestable and why."""

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from dtk.repro.claim import Claim
from dtk.repro.result import ClaimResult, count_statuses
from dtk.repro.tolerance import format_band
from dtk.repro.values import Status, format_bytes, format_value

__all__ = ["show_catalogue", "show_results", "summary_line"]

_UNLIMITED = 100_000
_STYLES: Mapping[Status, str] = {"pass": "green", "fail": "bold red", "not-testable": "yellow"}


def show_results(console: Console, claims: Iterable[Claim], results: Mapping[str, ClaimResult]) -> None:
    """Print the table of all claims that have a result, the reasons, and one line that sums up."""
    pairs = [(claim, results[claim.id]) for claim in claims if claim.id in results]
    table = _new_table("claim", "paper", "expected", "observed", "band", "status", "basis", "time")
    for claim, result in pairs:
        table.add_row(
            claim.id,
            format_value(claim.published.value),
            format_value(claim.expected.value),
            format_value(result.observed),
            _bands(claim, result),
            Text(result.status, style=_STYLES[result.status]),
            result.basis,
            f"{result.seconds:.1f} s",
        )
    _print_table(console, table)
    for claim, result in pairs:
        if result.reason:
            console.print(
                Text(f"{result.status}: {claim.id}: {result.reason}", style=_STYLES[result.status]),
                soft_wrap=True,
            )
    console.print(summary_line([result for _, result in pairs]))


def show_catalogue(console: Console, claims: Iterable[Claim]) -> None:
    """Print every claim with what it costs and needs."""
    table = _new_table(
        "claim", "where", "title", "paper", "tolerance", "basis", "quick", "minutes", "memory", "needs"
    )
    for claim in claims:
        table.add_row(
            claim.id,
            claim.where,
            claim.title,
            format_value(claim.published.value),
            claim.expected.tolerance.kind,
            claim.basis,
            "yes" if claim.quick else "",
            f"{claim.minutes:g}",
            format_bytes(claim.memory),
            ", ".join([*claim.requires, *(["a check"] if claim.check is None else [])]),
        )
    _print_table(console, table)


def summary_line(results: Iterable[ClaimResult]) -> str:
    """Return for example `5 of 6 testable claims pass, 1 fails; 3 not testable here`."""
    counts = count_statuses(results)
    testable = counts["pass"] + counts["fail"]
    parts = (
        [f"{counts['pass']} of {testable} testable claims pass"] if testable else ["nothing testable here"]
    )
    if counts["fail"]:
        parts.append(f"{counts['fail']} {'fails' if counts['fail'] == 1 else 'fail'}")
    line = ", ".join(parts)
    return line + (
        f"; {counts['not-testable']} not testable here" if counts["not-testable"] and testable else ""
    )


def _bands(claim: Claim, result: ClaimResult) -> str:
    kind = claim.expected.tolerance.kind
    return " / ".join(dict.fromkeys(format_band(band, kind) for band in result.bands.values()))


def _new_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=column == "claim", overflow="fold")
    return table


def _print_table(console: Console, table: Table) -> None:
    """Print a table; where there is no terminal, as wide as it needs to be: one line a claim."""
    if console.is_terminal:
        console.print(table)
        return
    options = console.options.update(max_width=_UNLIMITED)
    table.width = Measurement.get(console, options, table).maximum
    console.print(table, crop=False)
