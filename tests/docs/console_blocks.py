"""Runs the `console` blocks of the documentation and compares what they print.

In a block, a line that starts with `$ ` is a command for bash, and the lines below it are what it prints, on
stdout and stderr together. `...` stands for any text, over several lines too; a command without lines below
may print anything. A command must exit with 0: to show a failing one, write `$ dtk ...; echo "exit code $?"`.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sybil import Example
from sybil.parsers.myst import CodeBlockParser

__all__ = ["Command", "ConsoleBlockParser", "matches", "parse_block", "run_command"]

# The commands under test are those of this interpreter, installed or not.
_PRELUDE = f"""
dtk() {{ '{sys.executable}' -m dtk "$@"; }}
python() {{ '{sys.executable}' "$@"; }}
"""
_TIMEOUT_S = 300


@dataclass(frozen=True)
class Command:
    """One command of a block and the text that it should print."""

    line: str
    expected: str


def parse_block(source: str) -> list[Command]:
    """Split a block into its commands; a line that ends in a backslash goes on in the next one."""
    commands: list[Command] = []
    rows = iter(source.splitlines())
    for row in rows:
        if row.startswith("$ "):
            line = row.removeprefix("$ ")
            while line.endswith("\\"):
                line = line[:-1] + next(rows).strip()
            commands.append(Command(line, ""))
        elif commands:
            commands[-1] = Command(commands[-1].line, f"{commands[-1].expected}{row}\n")
        elif row.strip():
            raise ValueError(f"a console block must start with a line '$ COMMAND', not {row!r}")
    return commands


def run_command(command: Command, folder: Path | None = None) -> str:
    """Run one command in a plain terminal and return what it printed.

    Raises:
        AssertionError: If it exits with another code than 0.
    """
    # Unbuffered, so that stdout and stderr come in the order in which a person would see them.
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"}
    result = subprocess.run(
        ["bash", "-c", _PRELUDE + command.line],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if result.returncode != 0:
        raise AssertionError(f"exit code {result.returncode} of: {command.line}\n{result.stdout}")
    return result.stdout


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is what `expected` says, `...` standing for any text; line ends do not count."""
    pattern = ".*?".join(re.escape(part) for part in _trimmed(expected).split("..."))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class ConsoleBlockParser(CodeBlockParser):
    """Finds `console` blocks for sybil."""

    language = "console"

    def evaluate(self, example: Example) -> str | None:
        """Run the block; return what differs, or None."""
        for command in parse_block(example.parsed):
            printed = run_command(command)
            if command.expected.strip() and not matches(command.expected, printed):
                return f"$ {command.line}\nexpected:\n{command.expected}\nprinted:\n{printed}"
        return None
