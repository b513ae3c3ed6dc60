"""The claims table of the terminal: one line a claim, as full as the terminal is wide.

Below it stands what is off or cannot be tested, and why.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from dtk.repro.claim import Claim
from dtk.repro.result import ClaimResult, count_statuses
from dtk.repro.tolerance import format_band
from dtk.repro.values import Status, by_name, format_bytes, format_value

__all__ = ["show_catalogue", "show_results", "summary_line"]

_Row = Mapping[str, str | Text]

_RESULT_LAYOUTS: Sequence[tuple[Collection[str], bool]] = (
    ((), False),
    ((), True),
    (("time",), True),
    (("basis", "time"), True),
    (("band", "basis", "time"), True),
)
"""Columns to leave out, and whether to show the first figure only: from the fullest to the narrowest."""

_CATALOGUE_LAYOUTS: Sequence[tuple[Collection[str], int]] = (
    ((), 80),
    (("paper", "tolerance", "basis"), 80),
    (("paper", "tolerance", "basis", "where"), 80),
    (("paper", "tolerance", "basis", "where", "memory"), 60),
    (("paper", "tolerance", "basis", "where", "memory"), 40),
    (("paper", "tolerance", "basis", "where", "memory"), 20),
)
"""Columns to leave out, and the length to which titles are cut."""

_STYLES: Mapping[Status, str] = {"pass": "green", "fail": "bold red", "not-testable": "yellow"}
_UNLIMITED = 100_000


def show_results(console: Console, claims: Iterable[Claim], results: Mapping[str, ClaimResult]) -> None:
    """Print the table of all claims that have a result, the reasons, and one line that sums up."""
    pairs = [(claim, results[claim.id]) for claim in claims if claim.id in results]
    layouts = [
        ([_result_row(claim, result, first_only) for claim, result in pairs], hidden)
        for hidden, first_only in _RESULT_LAYOUTS
    ]
    _print_fitting(console, layouts)
    for claim, result in pairs:
        if result.reason:
            line = Text(f"{result.status}: {claim.id}: {result.reason}", style=_STYLES[result.status])
            console.print(line, soft_wrap=True)
    console.print(summary_line([result for _, result in pairs]), soft_wrap=True)


def show_catalogue(console: Console, claims: Iterable[Claim]) -> None:
    """Print every claim with what it costs and needs."""
    claims = tuple(claims)
    layouts = [
        ([_catalogue_row(claim, title_length) for claim in claims], hidden)
        for hidden, title_length in _CATALOGUE_LAYOUTS
    ]
    _print_fitting(console, layouts)


def summary_line(results: Iterable[ClaimResult]) -> str:
    """Return for example `5 of 6 testable claims pass, 1 fails; 3 not testable here`."""
    counts = count_statuses(results)
    testable = counts["pass"] + counts["fail"]
    if not testable:
        return "nothing testable here"
    line = f"{counts['pass']} of {testable} testable claims pass"
    if counts["fail"]:
        line += f", {counts['fail']} {'fails' if counts['fail'] == 1 else 'fail'}"
    if counts["not-testable"]:
        line += f"; {counts['not-testable']} not testable here"
    return line


def _result_row(claim: Claim, result: ClaimResult, first_only: bool) -> _Row:
    kind = claim.expected.tolerance.kind
    bands = list(dict.fromkeys(format_band(band, kind) for band in result.bands.values()))
    return {
        "claim": claim.id,
        "paper": _figures(claim.published.value, first_only),
        "expected": _figures(claim.expected.value, first_only),
        "observed": _figures(result.observed, first_only),
        "band": f"{bands[0]} …" if first_only and len(bands) > 1 else " / ".join(bands),
        "status": Text(result.status, style=_STYLES[result.status]),
        "basis": result.basis,
        "time": f"{result.seconds:.1f} s",
    }


def _catalogue_row(claim: Claim, title_length: int) -> _Row:
    title = claim.title
    return {
        "claim": claim.id,
        "where": claim.where,
        "title": title if len(title) <= title_length else f"{title[: title_length - 1].rstrip()}…",
        "paper": format_value(claim.published.value),
        "tolerance": claim.expected.tolerance.kind,
        "basis": claim.basis,
        "quick": "yes" if claim.quick else "",
        "minutes": f"{claim.minutes:g}",
        "memory": format_bytes(claim.memory),
        "needs": ", ".join([*claim.requires, *(["a check"] if claim.check is None else [])]),
    }


def _figures(value: Any, first_only: bool) -> str:
    figures = list(by_name(value).values())
    return f"{format_value(figures[0])} …" if first_only and len(figures) > 1 else format_value(value)


def _print_fitting(console: Console, layouts: Sequence[tuple[Sequence[_Row], Collection[str]]]) -> None:
    """Print the first layout that fits the terminal, or the last; without a terminal the first one fits."""
    for rows, hidden in layouts:
        table = _table(rows, hidden)
        width = Measurement.get(console, console.options.update(max_width=_UNLIMITED), table).maximum
        if width <= console.width or not console.is_terminal:
            table.width = width
            break
    console.print(table, crop=False)


def _table(rows: Sequence[_Row], hidden: Collection[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    columns = [column for column in (rows[0] if rows else ()) if column not in hidden]
    for column in columns:
        table.add_column(column, no_wrap=column in {"claim", "status"}, overflow="fold")
    for row in rows:
        table.add_row(*(row[column] for column in columns))
    return table
