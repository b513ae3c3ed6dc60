"""`dtk hardware`: what dtk knows of hardware and where its figures come from; this machine's own figures."""

from datetime import date
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dtk.cli.options import JsonOption, QuietOption, ThreadsOption, VerboseOption
from dtk.cli.output import Output

if TYPE_CHECKING:
    from dtk.hardware.machine import MachineFigure

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="List and show the hardware that dtk knows by name; measure this machine."
)


class Kind(StrEnum):
    """The kinds of hardware in the catalogue."""

    CHIP = "chip"
    LINK = "link"
    NODE = "node"
    CLUSTER = "cluster"


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A name of 'dtk hardware list'.")]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", help="Your own hardware beside dtk's: TOML or YAML of the same form."),
]
KindOption = Annotated[Kind | None, typer.Option("--kind", help="Only hardware of this kind.")]
RoundsOption = Annotated[
    int, typer.Option("--rounds", min=1, max=1000, help="Times that each figure is taken.")
]
WriteOption = Annotated[
    Path | None,
    typer.Option("--write", help="New file that gets the machine as hardware for --file: TOML or YAML."),
]
NameOption = Annotated[str, typer.Option("--name", help="What to call the machine in that file.")]


@app.command("list")
def list_hardware(
    kind: KindOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List the chips, links, nodes and clusters that dtk knows by name."""
    from dtk.hardware.catalogue import load_catalogue
    from dtk.hardware.text import summary

    output = Output("hardware list", as_json=as_json, quiet=quiet, verbose=verbose)
    entries: list[dict[str, Any]] = [
        {"name": one.name, "kind": one.kind, "aliases": list(one.aliases), "summary": summary(one)}
        for one in load_catalogue(file).entries()
        if kind in {None, one.kind}
    ]

    def show(console: Console) -> None:
        table = Table("name", "kind", "", box=None, pad_edge=False)
        for entry in entries:
            table.add_row(entry["name"], entry["kind"], entry["summary"])
        console.print(table)

    # What a user's file says may be measured, published or guessed.
    output.finish({"hardware": entries}, basis=None if file else "published", show=show)


@app.command("show")
def show_hardware(
    name: NameArgument,
    file: FileOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show one chip, link, node or cluster: each figure, and the source it comes from."""
    from dtk.hardware.catalogue import load_catalogue
    from dtk.hardware.text import figure_text

    output = Output("hardware show", as_json=as_json, quiet=quiet, verbose=verbose)
    entry = load_catalogue(file).entry(name)
    facts: dict[str, Any] = entry.model_dump(exclude={"sources"}, exclude_none=True)
    figures: list[dict[str, Any]] = [
        {"figure": path, "value": value, "source": entry.source(path).model_dump()}
        for path, value in entry.figures()
    ]

    def show(console: Console) -> None:
        numbers = {path.partition(".")[0] for path, _ in entry.figures()}
        for field, value in facts.items():
            if field not in numbers and value not in ((), ""):
                console.print(f"{field}: {_plain(value)}", soft_wrap=True)
        for source, group in groupby(figures, key=lambda figure: figure["source"]):
            console.print()
            for figure in group:
                guess = " (estimate)" if source["estimate"] else ""
                console.print(f"{figure['figure']}: {figure_text(figure['figure'], figure['value'])}{guess}")
            for line in (source["note"], source["title"], source["url"], source["read_at"]):
                if line:
                    console.print(f"    {line}", soft_wrap=True)

    is_published = all(
        entry.source(path).url and not entry.source(path).estimate for path, _ in entry.figures()
    )
    data = {"kind": entry.kind, **facts, "figures": figures}
    output.finish(data, basis="published" if is_published else None, show=show)


@app.command("measure")
def measure_hardware(
    rounds: RoundsOption = 7,
    write: WriteOption = None,
    name: NameOption = "this machine",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Measure this machine: memory reads and copies, matrix products by size, the loopback."""
    import torch

    from dtk.hardware.machine import measure_machine
    from dtk.hardware.own import check_file
    from dtk.hardware.text import figure_text
    from dtk.repro.environment import available_threads

    output = Output("hardware measure", as_json=as_json, quiet=quiet, verbose=verbose)
    if write is not None:
        check_file(write, name)
    torch.set_num_threads(threads or available_threads())
    output.say("measuring: leave the machine alone for some seconds")
    figures = measure_machine(rounds=rounds)
    if write is not None:
        _write_hardware(write, name, figures)
        output.say(f"wrote {write}: {name}, for --file")

    def show(console: Console) -> None:
        table = Table("figure", "median", "lowest", "highest", box=None, pad_edge=False)
        for one in figures:
            values = (one.median, one.low, one.high)
            table.add_row(one.name, *(figure_text(f"value_{one.unit}", value) for value in values))
        console.print(table)

    data = {"threads": torch.get_num_threads(), "figures": [one.model_dump() for one in figures]}
    output.finish(data, basis="measured", show=show)


def _write_hardware(path: Path, name: str, figures: "list[MachineFigure]") -> None:
    """Write this machine and what was measured of it as a file of hardware."""
    import psutil
    import torch

    from dtk.hardware.own import hardware_text, machine_tables
    from dtk.repro.environment import capture_environment
    from dtk.timeline.files import write_atomically

    processor = str(capture_environment()["cpu"]["model"])
    threads = f"{torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"
    tables = machine_tables(
        figures,
        name=name,
        vendor=processor,
        memory_bytes=psutil.virtual_memory().total,
        source=f"measured by 'dtk hardware measure' on {date.today().isoformat()}, {threads}",
    )
    write_atomically(path, hardware_text(tables, path))


def _plain(value: Any) -> str:
    """Return a value as people write it, without Python's brackets and quotes."""
    if isinstance(value, dict):
        return " ".join(_plain(item) for item in value.values())
    if isinstance(value, list | tuple):
        return ", ".join(
            f"({_plain(one)})" if isinstance(one, list | tuple) else _plain(one) for one in value
        )
    return str(value)
