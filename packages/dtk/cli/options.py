"""The options that commands share, each defined once so that it reads and behaves the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ConfigOption",
    "DeviceOption",
    "JsonOption",
    "OutOption",
    "QuietOption",
    "SeedOption",
    "SetOption",
    "ThreadsOption",
    "VerboseOption",
]

_GROUP = "Common options"

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object on stdout, all else on stderr.", rich_help_panel=_GROUP
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No talk and no progress on stderr.", rich_help_panel=_GROUP)
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Say more, with tracebacks on errors.", rich_help_panel=_GROUP),
]
SeedOption = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of all random choices.", rich_help_panel=_GROUP),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=4096,
        help="CPU threads in all. Default: the cores of this machine.",
        rich_help_panel=_GROUP,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", help="auto, cpu, cuda or cuda:N; auto takes a GPU if any.", rich_help_panel=_GROUP
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder for results, plots and the resolved configuration.", rich_help_panel=_GROUP
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file, TOML or YAML.", rich_help_panel=_GROUP),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one configuration key; may be repeated.",
        rich_help_panel=_GROUP,
    ),
]
