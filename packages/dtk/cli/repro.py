"""The `dtk repro` command group."""

import typer

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="repro")
