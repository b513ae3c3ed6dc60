"""Runs `dtk` in a process of its own, as a person or as a CI system would see it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

__all__ = ["TERMINALS", "Result", "plain", "run_dtk"]

TERMINALS = {
    "plain": {},
    # Rich then styles its output even in a pipe, and splits an option's name into spans.
    "forced-colour": {"FORCE_COLOR": "1", "GITHUB_ACTIONS": "1", "COLUMNS": "60"},
}
"""Environments in which every command must say the same."""


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    code: int
    stdout: str
    stderr: str

    def json(self) -> dict[str, Any]:
        """Return the one object on stdout."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document


def run_dtk(*arguments: str, terminal: str = "plain") -> Result:
    """Run one command of this interpreter's dtk, with nothing on stdin."""
    done = subprocess.run(
        [sys.executable, "-m", "dtk", *arguments],
        env=os.environ | TERMINALS[terminal],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def plain(text: str) -> str:
    """Return the text without escapes, boxes and line breaks, with single spaces."""
    without_escapes = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return " ".join(re.sub("[─-╿]", " ", without_escapes).split())
