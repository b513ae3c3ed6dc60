"""The runner of the documentation's console blocks."""

from pathlib import Path

import pytest

from tests.docs.console_blocks import Command, matches, parse_block, run_command


def test_a_block_is_commands_with_what_they_print() -> None:
    block = "$ echo a \\\n    b\na b\n$ true\n$ printf 'x\\n\\ny'\nx\n\ny\n"
    assert parse_block(block) == [
        Command("echo a b", "a b\n"),
        Command("true", ""),
        Command("printf 'x\\n\\ny'", "x\n\ny\n"),
    ]


def test_a_block_must_start_with_a_command() -> None:
    with pytest.raises(ValueError, match="must start with"):
        parse_block("text\n$ true\n")


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("a b\n", "a b"),
        ("a  \n\n", "a\n"),
        ("a ... c\n", "a b c"),
        ("first\n...\nlast\n", "first\n1\n2\nlast\n"),
        ("...\n", ""),
        ("(1.5x) [...]\n", "(1.5x) [any]\n"),
    ],
)
def test_matches(expected: str, printed: str) -> None:
    assert matches(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [("a", "b"), ("a", "a\nmore"), ("a ... c", "a b d"), ("1.5", "1x5"), ("  a\nb", "a\n  b")],
)
def test_does_not_match(expected: str, printed: str) -> None:
    assert not matches(expected, printed)


def test_dtk_is_the_one_of_this_interpreter(tmp_path: Path) -> None:
    from dtk import __version__

    assert run_command(Command("dtk --version", ""), tmp_path) == f"dtk {__version__}\n"


def test_stdout_and_stderr_are_shown_in_order(tmp_path: Path) -> None:
    command = "python -c 'import sys; print(1); print(2, file=sys.stderr); print(3)'; pwd"
    assert run_command(Command(command, ""), tmp_path) == f"1\n2\n3\n{tmp_path}\n"


def test_a_failing_command_fails_and_can_be_shown(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code 2 of: dtk nonsense"):
        run_command(Command("dtk nonsense", ""), tmp_path)
    assert run_command(Command('false; echo "exit code $?"', ""), tmp_path) == "exit code 1\n"
