"""The `dtk scout bench` command group: measure what ScoutAttention's speed rests on."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dtk.cli.interrupts import interrupts_held_back
from dtk.cli.options import (
    ConfigOption,
    JsonOption,
    OutOption,
    QuietOption,
    SeedOption,
    SetOption,
    ThreadsOption,
    VerboseOption,
)
from dtk.cli.output import EXIT_INTERRUPTED, Output
from dtk.errors import CheckFailedError, InputError

if TYPE_CHECKING:
    from dtk.scout.bench.config import KernelBenchConfig

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="Measure what ScoutAttention's speed rests on, against limits and peers."
)

_SHAPE = "Shapes"
_HINTS: Final[Mapping[str, str]] = {
    "group_sizes": "give numbers from 1 to 16 with commas between them, such as 1,4",
    "dtypes": "give names with commas between them, such as fp32,bf16",
}


@app.callback()
def _group() -> None:
    """Keep `kernel` a sub-command while it is the only one."""


@app.command()
def kernel(
    batch: Annotated[int | None, typer.Option(help="Sequences. (default: 4)", rich_help_panel=_SHAPE)] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="KV heads. (default: 8)", rich_help_panel=_SHAPE)
    ] = None,
    group_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", help="Query heads a KV head, 1 to 16. (default: 1,4)", rich_help_panel=_SHAPE
        ),
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(help="Channels of a head. (default: 128)", rich_help_panel=_SHAPE)
    ] = None,
    selected_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens that a sequence attends to. (default: 2048)", rich_help_panel=_SHAPE),
    ] = None,
    context_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a sequence that they are selected from. (default: 16384)", rich_help_panel=_SHAPE
        ),
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(help="Tokens in a KV block. (default: 32)", rich_help_panel=_SHAPE)
    ] = None,
    dtypes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Number formats of K/V and query. (default: fp32,fp16,bf16)",
            rich_help_panel=_SHAPE,
        ),
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Rounds of a row at most. (default: 30)")] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time for the rounds of all rows, such as 90s. (default: 60s)"),
    ] = None,
    scaling: Annotated[
        bool | None,
        typer.Option(
            "--scaling", help="Also measure how our time grows with the selected tokens and the context."
        ),
    ] = None,
    scaling_tokens: Annotated[
        int | None, typer.Option(help="The largest selection and context of --scaling. (default: 65536)")
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Time our attention kernel in turn with torch's ways and the machine's limits.

    Everyone attends to the same tokens and is checked against float64 first.
    Ctrl-C ends the rounds early; what was measured is still reported.
    """
    output = Output("scout bench kernel", as_json=as_json, quiet=quiet, verbose=verbose)
    flags = {
        "batch": batch,
        "kv_heads": kv_heads,
        "group_sizes": group_sizes,
        "head_dim": head_dim,
        "selected_tokens": selected_tokens,
        "context_tokens": context_tokens,
        "block_size": block_size,
        "dtypes": dtypes,
        "repeats": repeats,
        "time_budget_s": time_budget,
        "scaling": scaling,
        "scaling_tokens": scaling_tokens,
    }
    _let_openmp_threads_sleep()
    settings = _settings(config, assignments, flags)
    if out is not None:
        from dtk.cli.out_folder import prepare_folder

        prepare_folder(out, settings, "scout bench kernel")
    with interrupts_held_back():
        from dtk.cli import scout_bench_kernel as command
        from dtk.cli.scout_bench_show import show

    request = command.Request(settings, threads, seed)
    report, data = command.run(request, output)
    status, code = "ok", 0
    if report.ours_is_wrong:
        status, code = "failed", CheckFailedError.exit_code
    elif report.interrupted:
        status, code = "interrupted", EXIT_INTERRUPTED
    if out is not None:
        from dtk.cli.out_folder import save_or_tell

        failure = save_or_tell(lambda: command.save(out, data, report, request), out, output)
        status, code = failure or (status, code)
    output.finish(data, basis="measured", status=status, show=lambda console: show(console, report))
    raise typer.Exit(code)


def _let_openmp_threads_sleep() -> None:
    """Keep torch's threads from spinning after their work, on the cores of whoever runs next."""
    if "torch" not in sys.modules:  # the library that torch brings reads it when it is loaded
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _settings(
    config: Path | None, assignments: list[str] | None, flags: dict[str, Any]
) -> "KernelBenchConfig":
    from dtk.configuration import load_config
    from dtk.scout.bench.config import KernelBenchConfig

    try:
        return load_config(KernelBenchConfig, file=config, assignments=assignments or (), flags=flags)
    except InputError as error:
        name = (error.field or "").partition(".")[0]
        if flags.get(name) is None:
            raise
        option = "--" + name.removesuffix("_s").replace("_", "-")
        hint = error.hint or _HINTS.get(name)
        raise InputError(error.message, field=option, value=error.value, hint=hint) from error
