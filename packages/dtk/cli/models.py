"""`dtk models`: which models there are, fetch one, say where it lies."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dtk.cli.options import JsonOption, QuietOption, VerboseOption
from dtk.cli.output import Output
from dtk.errors import CheckFailedError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="List, fetch and locate the models that dtk knows by name.")

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A name of 'dtk models list', a model folder, or a hub id org/name."),
]


@app.command("list")
def list_models(
    as_json: JsonOption = False, quiet: QuietOption = False, verbose: VerboseOption = False
) -> None:
    """List the models that dtk knows by name and which of them are in the cache."""
    from dtk.models import available, cache_dir

    output = Output("models list", as_json=as_json, quiet=quiet, verbose=verbose)
    models: list[dict[str, Any]] = [
        {
            "name": info.entry.name,
            "description": info.entry.description,
            "architecture": info.entry.architecture,
            "parameters": info.entry.parameters,
            "context_tokens": info.entry.context_tokens,
            "licence": info.entry.licence,
            "source": info.entry.source,
            "note": info.entry.note,
            "cached": info.folder is not None,
            "path": str(info.folder) if info.folder else None,
            "size_bytes": info.size_bytes,
        }
        for info in available()
    ]

    def show(console: Console) -> None:
        table = Table("name", "weights", "context", "licence", "cached", "source", box=None, pad_edge=False)
        for model in models:
            table.add_row(
                model["name"],
                f"{model['parameters'] / 1e6:.1f} M",
                f"{model['context_tokens']:,}",
                model["licence"],
                f"{model['size_bytes'] / 1e6:.1f} MB" if model["cached"] else "no",
                model["source"],
            )
        console.print(table)

    output.finish({"cache_dir": str(cache_dir()), "models": models}, show=show)


@app.command("get")
def get_model(
    name: NameArgument,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Fetch and convert a model into the cache, once; print its folder."""
    from dtk import models

    output = Output("models get", as_json=as_json, quiet=quiet, verbose=verbose)
    folder = models.get(name, say=output.say)
    output.finish(
        {"name": name, "path": str(folder)}, show=lambda console: console.print(folder, soft_wrap=True)
    )


@app.command("path")
def model_path(
    name: NameArgument,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Print the folder of a model that is on this machine; exit code 1 if it is not."""
    from dtk import models

    output = Output("models path", as_json=as_json, quiet=quiet, verbose=verbose)
    folder = models.path(name)
    if folder is None:
        raise CheckFailedError(
            "not on this machine", field="NAME", value=name, hint=f"run 'dtk models get {name}'"
        )
    output.finish(
        {"name": name, "path": str(folder)}, show=lambda console: console.print(folder, soft_wrap=True)
    )
