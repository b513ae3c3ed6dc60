"""Every `--help`: complete, quick to import, readable with and without colour."""

import json
import subprocess
import sys

import pytest
import typer

from dtk.cli import main
from tests.cli.terminal import TERMINALS, plain, run_dtk

HEAVY = ["torch", "ray", "triton", "transformers", "scipy", "matplotlib"]

# Runs in an interpreter of its own: asks for the help of every command and says what each one brought in.
_ALL_HELP = """
import contextlib, io, json, sys
from dtk.cli import main
paths, heavy = json.loads(sys.argv[1])
report = []
for path in paths:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main.run([*path, "--help"])
    report.append([path, code, sorted(set(heavy) & set(sys.modules)), printed.getvalue()])
print(json.dumps(report))
"""


def command_paths() -> list[list[str]]:
    """Return the words of every command and group, the root's (none) first."""

    def walk(command: object, path: list[str]) -> list[list[str]]:
        children: dict[str, object] = getattr(command, "commands", {})
        return [path] + [found for name, child in children.items() for found in walk(child, [*path, name])]

    return walk(typer.main.get_command(main.app), [])


def test_no_help_imports_a_heavy_library() -> None:
    paths = command_paths()
    assert len(paths) > 4
    arguments = json.dumps([paths, HEAVY])
    done = subprocess.run(
        [sys.executable, "-c", _ALL_HELP, arguments], capture_output=True, text=True, check=True, timeout=120
    )
    report = json.loads(done.stdout)
    assert len(report) == len(paths)
    for path, code, heavy, text in report:
        assert code == 0, path
        assert heavy == [], f"dtk {' '.join(path)} --help imports {heavy}"
        assert " ".join(["Usage: dtk", *path]) in plain(text)


def test_the_version_imports_no_heavy_library() -> None:
    code = "import sys; from dtk.cli import main; main.run(['--version']); "
    code += f"print(*set({HEAVY}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == [""]


@pytest.mark.parametrize("terminal", TERMINALS)
def test_root_help_names_every_group(terminal: str) -> None:
    text = plain(run_dtk("--help", terminal=terminal).stdout)
    for path in command_paths():
        assert not path or path[0] in text
    assert "--version" in text


def test_every_command_and_option_has_help() -> None:
    for path in command_paths():
        command = typer.main.get_command(main.app)
        for word in path:
            command = command.commands[word]  # type: ignore[attr-defined]
        assert command.help, f"dtk {' '.join(path)} has no help"
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"dtk {' '.join(path)}: {parameter.name} has no help"


def test_every_command_speaks_json() -> None:
    for path in command_paths():
        command = typer.main.get_command(main.app)
        for word in path:
            command = command.commands[word]  # type: ignore[attr-defined]
        if not hasattr(command, "commands"):
            names = {option for parameter in command.params for option in parameter.opts}
            assert "--json" in names, f"dtk {' '.join(path)} has no --json"
