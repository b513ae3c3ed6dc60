"""The terminal's table: a line a claim in pipes and on terminals of any usual width."""

import io
from typing import Any

import pytest
from rich.console import Console

from dtk.repro.claim import Claim
from dtk.repro.result import ClaimResult
from dtk.repro.table import show_catalogue, show_results
from tests.repro.samples import claim, parse

FIGURES = {"first of many": 1234567, "second": 0.123456, "third": 5}
CLAIMS = parse(
    claim("sample.one", "constant"),
    claim(
        "sample.several",
        "constant",
        expected=FIGURES,
        tolerance={"kind": "statistical", "low": {"first of many": 5, "second": 0.1}, "high": {"third": 9}},
    ),
    claim("sample.away", None, untestable="needs [bold]another[/bold] machine", title="t" * 60),
)


def result(claim: Claim, **fields: Any) -> ClaimResult:
    plain = {"id": claim.id, "config_hash": "0", "status": "pass", "basis": "measured", "seconds": 1.26}
    head = {"finished_utc": "", "bands": claim.expected.bands(), "observed": claim.expected.value}
    return ClaimResult.model_validate(plain | head | fields)


RESULTS = {
    "sample.one": result(CLAIMS[0], status="fail", reason="observed 2", observed=None),
    "sample.several": result(CLAIMS[1]),
    "sample.away": result(
        CLAIMS[2], status="not-testable", basis="published", observed=None, reason=CLAIMS[2].untestable
    ),
}


def printed(show: Any, *arguments: Any, width: int, terminal: bool) -> list[str]:
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, force_terminal=terminal, color_system=None, markup=False, highlight=False
    )
    show(console, *arguments)
    return stream.getvalue().splitlines()


def test_a_pipe_gets_everything_however_narrow_it_looks() -> None:
    lines = printed(show_results, CLAIMS, RESULTS, width=40, terminal=False)
    assert lines[1].split() == ["sample.one", "1", "1", "-", "equal", "fail", "measured", "1.3", "s"]
    assert "1,234,567 / 0.1235 / 5" in lines[2]
    assert "at least 5 / at least 0.1 / at most 9" in lines[2]
    assert lines[4:] == [
        "fail: sample.one: observed 2",
        "not-testable: sample.away: needs [bold]another[/bold] machine",
        "1 of 2 testable claims pass, 1 fails; 1 not testable here",
    ]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_terminal_gets_a_line_a_claim_within_its_width(width: int) -> None:
    lines = printed(show_results, CLAIMS, RESULTS, width=width, terminal=True)
    assert [line.split()[0] for line in lines[:4]] == ["claim", "sample.one", "sample.several", "sample.away"]
    assert all(len(line) <= width for line in lines[:4])
    assert all(word in lines[0] for word in ("paper", "expected", "observed", "status"))
    assert lines[3].count("not-testable") == 1


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_catalogue_fits_too(width: int) -> None:
    lines = printed(show_catalogue, CLAIMS, width=width, terminal=True)
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)
    assert "a check" in lines[3]


def test_no_results_is_no_crash() -> None:
    assert printed(show_results, CLAIMS, {}, width=80, terminal=True)[-1] == "nothing testable here"
