"""Sets the environment of all tests, and makes tests of the examples in README.md and docs/.

Their Python blocks run here, their console blocks in a shell.
"""

# ruff: noqa: E402, PTH100

import os

# Triton, typer and rich read these when they are first imported, so they come before all imports.
# TRITON_INTERPRET=0 outside overrules the first: kernels are then compiled, for tests on a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.update({"TERM": "dumb", "COLUMNS": "120"})
for _variable in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "CLICOLOR_FORCE", "TYPER_USE_RICH"):
    os.environ.pop(_variable, None)
# Commands under test run in folders of their own, and must still find the same dtk.
if _path := os.environ.get("PYTHONPATH"):
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in _path.split(os.pathsep))

import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser
from tests.docs.console_blocks import ConsoleBlockParser

# A shell starts its background jobs with SIGINT ignored, and child processes inherit that: the tests of
# Ctrl-C could not interrupt theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["build", "dist", "docs/_build"]


def _enter_empty_folder(namespace: dict[str, Any]) -> None:
    """Give each page a folder of its own to write into."""
    namespace["_before"] = Path.cwd()
    namespace["_folder"] = tempfile.TemporaryDirectory()
    os.chdir(namespace["_folder"].name)


def _leave_folder(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[ConsoleBlockParser(), PythonCodeBlockParser(), SkipParser()],
    patterns=["*.md"],
    setup=_enter_empty_folder,
    teardown=_leave_folder,
).pytest()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples last: they are the slowest, and a broken build shows sooner in a unit test."""
    items.sort(key=lambda item: item.path.suffix == ".md")
