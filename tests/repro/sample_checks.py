"""Checks that stand in for real ones: constant, slow, broken in several ways."""

import time
from pathlib import Path
from typing import Any

from dtk.errors import NotTestableError, RunFailedError
from dtk.repro.checks import Observed, Plot, RunContext, Series

__all__ = ["bare", "constant", "crash", "hostile", "lost_download", "nan", "not_here", "shared_count", "wait"]

HOSTILE = "<script>alert('x')</script> & \" $a_1$ --> ]]> <img src=http://evil.example/x.png>"


def constant(context: RunContext, *, value: Any, log: str = "") -> Observed:
    _note(log, f"constant {value}")
    return Observed(value=value, basis="analytic", details={"seed": context.seed, "threads": context.threads})


def wait(context: RunContext, *, log: str, release: str) -> Observed:
    """Wait until the file `release` exists, for at most a minute."""
    _note(log, "wait")
    for step in range(1200):
        context.progress("waiting", step, 1200)
        if Path(release).exists():
            return Observed(value=1, basis="measured")
        time.sleep(0.05)
    raise RuntimeError("nobody released the check")


def crash(context: RunContext) -> Observed:
    raise ZeroDivisionError("the check divides\nby zero")


def lost_download(context: RunContext) -> Observed:
    raise RunFailedError("the download broke off", field="model", value="smollm2-135m")


def not_here(context: RunContext) -> Observed:
    raise NotTestableError("needs a second machine")


def nan(context: RunContext) -> Observed:
    return Observed(
        value=float("nan"), basis="measured", details={"inf": float("inf"), "list": [float("nan"), {"x": 1}]}
    )


def bare(context: RunContext) -> float:
    return 1.0


def shared_count(context: RunContext, *, log: str) -> Observed:
    def make() -> int:
        _note(log, "made")
        return 1

    return Observed(value=context.shared("sample", make), basis="measured")


def hostile(context: RunContext) -> Observed:
    series = (
        Series(name=HOSTILE, x=(1.0, 2.0), y=(1.0, None), basis="measured"),
        Series(name="_hidden", x=(1.0, 2.0), y=(2.0, 3.0), style="points", basis="analytic"),
    )
    bars = (Series(name="bars", x=(HOSTILE, "b"), y=(1.0, 2.0), style="bars", basis="measured"),)
    return Observed(
        value=1,
        basis="measured",
        details={HOSTILE: HOSTILE, "nested": {"a": [1, 2.5, None]}},
        plots=(
            Plot(title=HOSTILE, x_label=HOSTILE, y_label="$y", series=series, lines={HOSTILE: 1.5}),
            Plot(title="bars", x_label="x", y_label="y", series=bars, y_scale="log"),
        ),
    )


def _note(log: str, word: str) -> None:
    if log:
        with Path(log).open("a", encoding="utf-8") as stream:
            stream.write(word + "\n")
