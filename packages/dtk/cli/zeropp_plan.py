"""`dtk zeropp plan`: the best configuration for a model on a cluster, with reasons and rivals."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dtk.cli.options import ConfigOption, JsonOption, OutOption, QuietOption, SetOption, VerboseOption
from dtk.cli.output import EXIT_INTERRUPTED, Output
from dtk.cli.zeropp_plan_options import (
    CheckOption,
    ChunksPin,
    ClusterOption,
    GlobalBatchOption,
    GlobalBatchTokensOption,
    HardwareOption,
    HybridPin,
    KeepLastPin,
    MemoryOption,
    MicroBatchPin,
    ModelOption,
    NoFlashOption,
    PipelinePin,
    RecipeOption,
    RecomputationPin,
    ResidentPin,
    RivalsOption,
    RunnersUpOption,
    SequenceTokensOption,
    ShardRanksPin,
    SplitPin,
    StackOption,
    TimeBudgetOption,
    UnitPin,
)
from dtk.errors import InputError

if TYPE_CHECKING:
    from dtk.zeropp.planning.config import PlanConfig

__all__ = ["plan"]

_COMMAND = "zeropp plan"


def plan(
    model: ModelOption = None,
    cluster: ClusterOption = None,
    hardware: HardwareOption = None,
    global_batch: GlobalBatchOption = None,
    global_batch_tokens: GlobalBatchTokensOption = None,
    sequence_tokens: SequenceTokensOption = None,
    recipe: RecipeOption = None,
    no_flash_attention: NoFlashOption = False,
    stack: StackOption = None,
    memory: MemoryOption = None,
    pp: PipelinePin = None,
    chunks: ChunksPin = None,
    unit: UnitPin = None,
    shard_ranks: ShardRanksPin = None,
    micro_batch: MicroBatchPin = None,
    recomputation: RecomputationPin = None,
    keep_last_chunk: KeepLastPin = None,
    split: SplitPin = None,
    hybrid: HybridPin = None,
    resident_chunks: ResidentPin = None,
    rivals: RivalsOption = None,
    runners_up: RunnersUpOption = None,
    time_budget: TimeBudgetOption = None,
    check: CheckOption = False,
    config: ConfigOption = None,
    assignments: SetOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Find the ZeroPP configuration with the shortest iteration, say why, and set its rivals beside it.

    Ctrl-C ends the search; the best plan so far is reported.
    """
    output = Output(_COMMAND, as_json=as_json, quiet=quiet, verbose=verbose)
    flags: dict[str, Any] = {
        "model": model,
        "cluster": cluster,
        "hardware": hardware,
        "global_batch": global_batch,
        "global_batch_tokens": global_batch_tokens,
        "sequence_tokens": sequence_tokens,
        "recipe": recipe,
        "flash_attention": False if no_flash_attention else None,
        "stack": stack,
        "memory": memory,
        "pp": pp,
        "chunks": chunks,
        "unit": unit,
        "shard_ranks": shard_ranks,
        "micro_batch": micro_batch,
        "recomputation": recomputation,
        "keep_last_chunk": keep_last_chunk,
        "split": split,
        "hybrid": hybrid,
        "resident_chunks": resident_chunks,
        "rivals": "none" if check else rivals,
        "runners_up": 0 if check else runners_up,
        "time_budget_s": time_budget,
    }
    settings = _settings(config, assignments, flags)
    from dtk.cli import zeropp_plan_run as command

    with _naming_options():
        problem = command.describe(settings)
        if out is not None:
            command.prepare(out, settings)
        found = command.search(problem, settings, output)
    if found.best is None and found.interrupted:
        command.tell_interrupted(found, output)
        output.finish(command.data(found, settings), basis="simulated", status="interrupted")
        raise typer.Exit(EXIT_INTERRUPTED)
    if found.best is None and (not check or not found.search.is_complete):
        raise command.nothing_found(found)
    status, code = ("interrupted", EXIT_INTERRUPTED) if found.interrupted else ("ok", 0)
    if found.best is None:
        status, code = "failed", 1
    data = command.data(found, settings)
    if out is not None:
        from dtk.cli.out_folder import save_or_tell

        failure = save_or_tell(lambda: command.save(out, data, found, settings), out, output)
        status, code = failure or (status, code)
    show = command.show_check if check else command.show
    output.finish(data, basis="simulated", status=status, show=lambda console: show(console, found))
    raise typer.Exit(code)


def _settings(config: Path | None, assignments: list[str] | None, flags: dict[str, Any]) -> "PlanConfig":
    from dtk.configuration import load_config
    from dtk.zeropp.planning.config import PlanConfig

    try:
        return load_config(PlanConfig, file=config, assignments=assignments or (), flags=flags)
    except InputError as error:
        name = (error.field or "").partition(".")[0]
        if flags.get(name) is None:
            raise
        raise InputError(error.message, field=_option_of(name), value=error.value, hint=error.hint) from error


@contextmanager
def _naming_options() -> Iterator[None]:
    """Let errors name options instead of settings.

    Raises:
        InputError: What was raised, with another field.
    """
    try:
        yield
    except InputError as error:
        field = error.field or ""
        if field.startswith("--file"):
            field = field.replace("--file", "--hardware", 1)
        elif field.startswith("model: "):
            field = f"--{field}"
        elif field in {"chip", "node", "link"}:
            field = f"--cluster: {field}"
        elif field and not field.startswith("--"):
            field = _option_of(field)
        raise InputError(error.message, field=field or None, value=error.value, hint=error.hint) from error


def _option_of(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")
