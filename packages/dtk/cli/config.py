"""`dtk config`: the settings of each part, resolved from defaults, file and assignments, and their schema."""

import json
from collections.abc import Mapping
from typing import Annotated, Final

import pydantic
import typer
import yaml

from dtk.cli.options import ConfigOption, JsonOption, QuietOption, SetOption, VerboseOption
from dtk.cli.output import Output
from dtk.configuration import load_config
from dtk.errors import InputError
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.config import ScoutConfig
from dtk.zeropp.config import ZeroppConfig
from dtk.zeropp.planning.config import PlanConfig

__all__ = ["SECTIONS", "app"]

SECTIONS: Final[Mapping[str, type[pydantic.BaseModel]]] = {
    "scout": ScoutConfig,
    "scout-bench-kernel": KernelBenchConfig,
    "zeropp": ZeroppConfig,
    "zeropp-plan": PlanConfig,
}
"""The parts that have settings of their own, by the words of their command or command group."""

app = typer.Typer(no_args_is_help=True, help="Show resolved settings and their schema.")

SectionArgument = Annotated[
    str, typer.Argument(metavar="SECTION", help=f"The part whose settings are meant: {', '.join(SECTIONS)}.")
]


@app.command("show")
def show(
    section: SectionArgument,
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Print the settings that a command would run with, as YAML that --config reads back."""
    output = Output("config show", as_json=as_json, quiet=quiet, verbose=verbose)
    settings = load_config(_model(section), file=config, assignments=assignments or ())
    values = settings.model_dump(mode="json")
    text = yaml.safe_dump(values, sort_keys=False)
    output.finish(
        {"section": section, "config": values},
        show=lambda console: console.print(text, end="", soft_wrap=True),
    )


@app.command("schema")
def schema(
    section: SectionArgument,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Print the JSON Schema of the settings, for editors and checkers."""
    output = Output("config schema", as_json=as_json, quiet=quiet, verbose=verbose)
    document = _model(section).model_json_schema()
    text = json.dumps(document, indent=2)
    output.finish(
        {"section": section, "schema": document}, show=lambda console: console.print(text, soft_wrap=True)
    )


def _model(section: str) -> type[pydantic.BaseModel]:
    if section not in SECTIONS:
        raise InputError(
            "has no settings", field="SECTION", value=section, hint=f"one of: {', '.join(SECTIONS)}"
        )
    return SECTIONS[section]
