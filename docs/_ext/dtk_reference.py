"""Writes the reference pages that would rot if a person wrote them, each time the documentation is built.

Commands come from Typer's tree, settings from their pydantic models, claims from the claims files, number
formats from the kernels' table, figures of hardware from its catalogue, predictions of the cost model beside
published measurements. The pages go to docs/reference/generated, which git ignores.
"""

import enum
import inspect
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import typer
from cost_model_accuracy import accuracy_pages
from hardware_figures import hardware_page
from number_formats import formats_page

from dtk.cli import config, main
from dtk.repro.catalogue import load_papers
from dtk.repro.claim import Claim, Paper
from dtk.repro.tolerance import format_band
from dtk.repro.values import format_bytes, format_value

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["claims_page", "cli_page", "commands", "config_page", "setup"]


def commands() -> Iterator[tuple[list[str], Any]]:
    """Yield the words and the command object of every command and group below the root."""

    def walk(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
        for name, child in getattr(command, "commands", {}).items():
            yield [*path, name], child
            yield from walk(child, [*path, name])

    return walk(typer.main.get_command(main.app), [])


def cli_page() -> str:
    """Return the page of all commands."""
    parts = [
        "# Commands",
        "Every command takes `--help`; for exit codes and `--json`, see {doc}`/howto/json`.",
    ]
    for path, command in commands():
        title = f"dtk {' '.join(path)}"
        parts.append(f"{'#' * min(len(path) + 1, 4)} `{title}`\n\n{inspect.cleandoc(command.help or '')}")
        if hasattr(command, "commands"):
            continue
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        words = " ".join(argument.metavar or argument.name.upper() for argument in arguments)
        parts.append(f"```text\n{title} [OPTIONS]{words and ' ' + words}\n```")
        parts.append(_parameter_table(command))
    return "\n\n".join(parts) + "\n"


def _parameter_table(command: Any) -> str:
    hints = typing.get_type_hints(command.callback)
    rows = [("", "value", "default", "")]
    for parameter in command.params:
        if parameter.name == "help":
            continue
        names = (
            parameter.opts if parameter.param_type_name == "option" else [parameter.metavar or parameter.name]
        )
        value = _value_name(hints.get(parameter.name, str), parameter.metavar)
        default = "required" if parameter.required else _default_text(parameter.default)
        rows.append((", ".join(f"`{name}`" for name in names), value, default, parameter.help or ""))
    return _table(rows)


def _value_name(hint: Any, metavar: str | None) -> str:
    members = [one for one in typing.get_args(hint) if one is not type(None)]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return _value_name(members[0], metavar)
    if typing.get_origin(hint) is list:
        return f"{_value_name(members[0], metavar)}, repeatable"
    if hint is bool:
        return "flag"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(f"`{member.value}`" for member in hint)
    names = {int: "integer", float: "number", Path: "path"}
    return f"`{metavar}`" if metavar else names.get(hint, "text")


def _default_text(default: Any) -> str:
    if default is None or default is False or default == []:
        return ""
    return f"`{default.value if isinstance(default, enum.Enum) else default}`"


def config_page(section: str, model: type[pydantic.BaseModel]) -> str:
    """Return the page of one part's settings; each field is described by its model's docstring."""
    descriptions = attribute_descriptions(model)
    rows = [("key", "value", "default", "")]
    for name, field in model.model_fields.items():
        value = f"`{_annotation_text(model, name)}`"
        default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
        rows.append((f"`{name}`", value, default, descriptions[name]))
    summary = inspect.cleandoc(model.__doc__ or "").split("\n\n")[0]
    intro = (
        f"{summary}\n\nGiven by `--config FILE` (TOML or YAML), `--set KEY=VALUE` and options; later ones "
        f"win. `dtk config show {section}` prints the resolved settings, and `dtk config schema {section}` "
        "their JSON Schema."
    )
    return f"# Settings of dtk {section.replace('-', ' ')}\n\n{intro}\n\n{_table(rows)}\n"


def _annotation_text(model: type[pydantic.BaseModel], name: str) -> str:
    schema = model.model_json_schema()["properties"][name]
    return _schema_text(schema)


def _schema_text(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_schema_text(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"[{_schema_text(schema['items'])}, ...]"
    limits = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = "".join(f" {sign} {schema[key]}" for key, sign in limits.items() if key in schema)
    return f"{schema.get('type', 'table')}{bounds}"


def attribute_descriptions(model: type[pydantic.BaseModel]) -> dict[str, str]:
    """Return the texts of a Google-style `Attributes:` section by field.

    Raises:
        ValueError: If a field has no text there.
    """
    _, _, section = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith("    "):
            break
        if line.startswith("    ") and not line.startswith("     "):
            name, _, text = line.strip().partition(": ")
            texts[name] = text
        elif name and line:
            texts[name] += " " + line.strip()
    missing = set(model.model_fields) - set(texts)
    if missing:
        raise ValueError(f"{model.__name__} does not describe {', '.join(sorted(missing))}")
    return texts


def claims_page(paper: Paper) -> str:
    """Return the page of one paper's claims: a table of all, then each one in words."""
    rows = [("claim", "where", "paper", "expected here", "basis", "minutes", "needs")]
    rows += [_claim_row(claim) for claim in paper.claims]
    run = f"dtk repro run {paper.paper}"
    intro = (
        f"{paper.title} ({paper.citation}). *paper* is the published value, *expected here* what dtk expects "
        f"on a small machine and the band that passes. `{run}` checks them all, `{run} --quick` those that "
        "take minutes, `dtk repro run ID` one."
    )
    sections = [_claim_section(claim) for claim in paper.claims]
    return "\n\n".join([f"# Claims of {paper.paper}", intro, _table(rows), *sections]) + "\n"


def _claim_row(claim: Claim) -> tuple[str, ...]:
    needs = [*claim.requires, format_bytes(claim.memory)] if claim.check else ["not testable yet"]
    return (
        f"[`{claim.id}`](#{claim.id.replace('.', '-')})",
        claim.where,
        format_value(claim.published.value, unit=claim.unit),
        f"{format_value(claim.expected.value, unit=claim.unit)}; {_bands(claim)}",
        claim.basis,
        f"{claim.minutes:g}{' (quick)' if claim.quick else ''}",
        ", ".join(needs),
    )


def _bands(claim: Claim) -> str:
    kind = claim.expected.tolerance.kind
    texts = dict.fromkeys(format_band(band, kind) for band in claim.expected.bands().values())
    return f"{kind}: {' / '.join(texts)}"


def _claim_section(claim: Claim) -> str:
    lines = [
        f"({claim.id.replace('.', '-')})=\n## `{claim.id}`",
        f"**{claim.title}.** {' '.join(claim.statement.split())}",
        f"*Scale:* {claim.expected.scale_rule}.",
    ]
    if claim.published.note:
        lines.append(f"*About the paper's value ({claim.published.reading}):* {claim.published.note}.")
    if claim.untestable:
        lines.append(f"*Not testable:* {claim.untestable}.")
    return "\n\n".join(line.replace("..", ".") for line in lines)


def _table(rows: list[tuple[str, ...]]) -> str:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _write_pages(app: "Sphinx") -> None:
    pages = {"cli.md": cli_page(), "formats.md": formats_page(), "hardware.md": hardware_page()}
    pages |= {f"config-{name}.md": config_page(name, model) for name, model in config.SECTIONS.items()}
    pages |= {f"claims-{paper.paper}.md": claims_page(paper) for paper in load_papers()}
    pages |= accuracy_pages()
    folder = Path(app.srcdir) / "reference" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {*folder.glob("*.md"), *folder.glob("*.svg")} - {folder / name for name in pages}:
        stale.unlink()
    for name, text in pages.items():
        file = folder / name
        # An unchanged page keeps its time, so that Sphinx need not read it again.
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def setup(app: "Sphinx") -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", _write_pages)
    return {"parallel_read_safe": True}
