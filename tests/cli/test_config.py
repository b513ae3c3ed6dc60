"""`dtk config`: what it prints reads back, with every layer applied."""

import json
from pathlib import Path

import pytest
import yaml

from dtk.cli import main
from dtk.cli.config import SECTIONS
from dtk.configuration import load_config
from tests.cli.terminal import TERMINALS, run_dtk


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_shown_reads_back(section: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["config", "show", section]) == 0
    file = tmp_path / "settings.yaml"
    file.write_text(capsys.readouterr().out)
    assert load_config(SECTIONS[section], file=file) == SECTIONS[section]()


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_are_strict_and_frozen(section: str) -> None:
    settings = SECTIONS[section].model_config
    assert (settings["extra"], settings["frozen"]) == ("forbid", True)


def test_file_and_assignments_are_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("budget_tokens = 512\nblock_size = 16\n")
    words = ["config", "show", "scout", "--config", str(file), "--set", "block_size=64", "--json"]
    assert main.run(words) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["section"], data["config"]["budget_tokens"], data["config"]["block_size"]) == (
        "scout",
        512,
        64,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nonsense"], "SECTION: has no settings (got 'nonsense'); one of: scout"),
        (["show", "scout", "--set", "blocksize=1"], "blocksize: unknown key"),
        (
            ["show", "scout", "--set", "block_size=0"],
            "block_size: must be greater than or equal to 1 (got 0)",
        ),
        (["schema", "nonsense"], "SECTION: has no settings"),
        (["show", "scout", "--set", "block_size=true"], "block_size: must be a number (got True)"),
        (["show", "scout", "--set", "recall_interval=[8, true]"], "recall_interval: must be a number"),
        (["show", "scout", "--set", "block_size=1\nx=2"], "--set: must be one line"),
        (["show", "scout", "--set", "block_size=inf", "--json"], "block_size: must be a finite number"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["config", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("terminal", TERMINALS)
def test_output_is_plain_data_on_every_terminal(terminal: str) -> None:
    shown = run_dtk("config", "show", "scout", terminal=terminal)
    assert yaml.safe_load(shown.stdout)["block_size"] == 32
    schema = run_dtk("config", "schema", "scout", terminal=terminal)
    assert json.loads(schema.stdout)["properties"]["block_size"]["default"] == 32
    document = run_dtk("config", "schema", "scout", "--json", terminal=terminal).json()
    assert document["data"]["schema"] == json.loads(schema.stdout)
