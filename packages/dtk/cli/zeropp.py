"""The `dtk zeropp` command group: pipeline schedules, one explained or several side by side; plans."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dtk.cli.options import (
    ConfigOption,
    JsonOption,
    OutOption,
    QuietOption,
    SeedOption,
    SetOption,
    VerboseOption,
)
from dtk.cli.output import EXIT_INTERRUPTED, Output
from dtk.cli.zeropp_options import (
    ChunksOption,
    EffortOption,
    ForwardTimeOption,
    GatherTimeOption,
    GroupSizeOption,
    InputGradTimeOption,
    LookaheadOption,
    MemoryChunksOption,
    MicroBatchesOption,
    NoSplitOption,
    OptimizerTimeOption,
    PipelineRanksOption,
    ReduceOption,
    ReduceTimeOption,
    ResidentChunksOption,
    ReverseBackwardOption,
    TorchStageZeroOption,
    TransferTimeOption,
    UnitOption,
    WeightGradTimeOption,
    WeightOrderOption,
)
from dtk.cli.zeropp_plan import plan
from dtk.errors import InputError

if TYPE_CHECKING:
    from dtk.zeropp.config import ZeroppConfig

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="ZeroPP and its peers: pipeline schedules without a GPU.")
app.command()(plan)

_NAMES: Final = "gpipe, 1f1b, interleaved, bfs, zb-h1, zb-h2, zb-v, dualpipe-v, zeropp, optimal"


@app.command()
def schedule(
    schedule: Annotated[
        str | None, typer.Option("--schedule", help=f"One of {_NAMES}. (default: zeropp)")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="Read the schedule from a file (- is stdin) in torch's notation, one line a rank."
        ),
    ] = None,
    pp: PipelineRanksOption = None,
    chunks: ChunksOption = None,
    micro_batches: MicroBatchesOption = None,
    forward_time: ForwardTimeOption = None,
    input_grad_time: InputGradTimeOption = None,
    weight_grad_time: WeightGradTimeOption = None,
    transfer_time: TransferTimeOption = None,
    gather_time: GatherTimeOption = None,
    reduce_time: ReduceTimeOption = None,
    optimizer_time: OptimizerTimeOption = None,
    torch_stage_zero: TorchStageZeroOption = None,
    unit: UnitOption = None,
    weight_order: WeightOrderOption = None,
    no_split: NoSplitOption = False,
    group_size: GroupSizeOption = None,
    reverse_backward: ReverseBackwardOption = None,
    memory_chunks: MemoryChunksOption = None,
    effort: EffortOption = None,
    resident_chunks: ResidentChunksOption = None,
    lookahead: LookaheadOption = None,
    reduce: ReduceOption = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print one line a rank in torch's notation, and nothing else.")
    ] = False,
    draw: Annotated[
        bool, typer.Option("--draw", help="Draw who computes what when: in time slots, if they fit.")
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", help="Write a timeline: .json or .json.gz for Perfetto, .svg or .png."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Simulate one schedule and explain it: idle time by cause, activations, gathers, distance to the bound.

    Ctrl-C ends the search for an optimal schedule; the best one so far is reported.
    """
    output = Output("zeropp schedule", as_json=as_json, quiet=quiet, verbose=verbose)
    if file is not None and schedule is not None:
        raise InputError("give a schedule's name or a file, not both", field="--file", value=str(file))
    flags = {
        "schedule": schedule,
        "pp": pp,
        "chunks": chunks,
        "micro_batches": micro_batches,
        "forward_time_s": forward_time,
        "input_grad_time_s": input_grad_time,
        "weight_grad_time_s": weight_grad_time,
        "transfer_time_s": transfer_time,
        "gather_time_s": gather_time,
        "reduce_time_s": reduce_time,
        "optimizer_time_s": optimizer_time,
        "torch_stage_zero": torch_stage_zero,
        "unit": unit,
        "weight_order": weight_order,
        "split": False if no_split else None,
        "group_size": group_size,
        "reverse_backward": reverse_backward,
        "memory_chunks": memory_chunks,
        "effort": effort,
        "resident_chunks": resident_chunks,
        "lookahead": lookahead,
        "reduce": reduce,
    }
    settings = _settings(config, assignments, flags)
    from dtk.cli import zeropp_schedule as command
    from dtk.cli.out_folder import save_or_tell

    request = command.Request(settings, seed, file, flags, text=text, draw=draw)
    if timeline is not None:
        command.check_timeline(timeline)
    _prepare(out, settings, "zeropp schedule")
    report, data = command.run(request, output)
    status, code = ("interrupted", EXIT_INTERRUPTED) if report.interrupted else ("ok", 0)
    if timeline is not None:
        failure = save_or_tell(lambda: command.write_timeline(report, timeline), timeline, output)
        status, code = failure or (status, code)
    if out is not None:
        failure = save_or_tell(lambda: command.save(out, data, report, request), out, output)
        status, code = failure or (status, code)
    output.finish(
        data,
        basis="simulated",
        status=status,
        show=lambda console: command.show(console, report, request),
    )
    raise typer.Exit(code)


@app.command()
def compare(
    schedules: Annotated[
        str | None,
        typer.Option("--schedules", metavar="NAME,...", help=f"Some of {_NAMES}; or all. (default: all)"),
    ] = None,
    pp: PipelineRanksOption = None,
    chunks: ChunksOption = None,
    micro_batches: MicroBatchesOption = None,
    forward_time: ForwardTimeOption = None,
    input_grad_time: InputGradTimeOption = None,
    weight_grad_time: WeightGradTimeOption = None,
    transfer_time: TransferTimeOption = None,
    gather_time: GatherTimeOption = None,
    reduce_time: ReduceTimeOption = None,
    optimizer_time: OptimizerTimeOption = None,
    torch_stage_zero: TorchStageZeroOption = None,
    unit: UnitOption = None,
    weight_order: WeightOrderOption = None,
    no_split: NoSplitOption = False,
    group_size: GroupSizeOption = None,
    reverse_backward: ReverseBackwardOption = None,
    memory_chunks: MemoryChunksOption = None,
    effort: EffortOption = None,
    resident_chunks: ResidentChunksOption = None,
    lookahead: LookaheadOption = None,
    reduce: ReduceOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    seed: SeedOption = 0,
    out: OutOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Simulate several schedules of one model and set them side by side.

    Schedules that do not exist for V chunks run with their own number of chunks; the model is cut anew for
    them, so that all compute the same.
    Ctrl-C ends the search for an optimal schedule; the best one so far is reported.
    """
    output = Output("zeropp compare", as_json=as_json, quiet=quiet, verbose=verbose)
    flags = {
        "schedules": schedules,
        "pp": pp,
        "chunks": chunks,
        "micro_batches": micro_batches,
        "forward_time_s": forward_time,
        "input_grad_time_s": input_grad_time,
        "weight_grad_time_s": weight_grad_time,
        "transfer_time_s": transfer_time,
        "gather_time_s": gather_time,
        "reduce_time_s": reduce_time,
        "optimizer_time_s": optimizer_time,
        "torch_stage_zero": torch_stage_zero,
        "unit": unit,
        "weight_order": weight_order,
        "split": False if no_split else None,
        "group_size": group_size,
        "reverse_backward": reverse_backward,
        "memory_chunks": memory_chunks,
        "effort": effort,
        "resident_chunks": resident_chunks,
        "lookahead": lookahead,
        "reduce": reduce,
    }
    settings = _settings(config, assignments, flags)
    from dtk.cli import zeropp_compare as command
    from dtk.cli.out_folder import save_or_tell

    request = command.Request(settings, seed)
    _prepare(out, settings, "zeropp compare")
    comparison, data = command.run(request, output)
    status, code = ("interrupted", EXIT_INTERRUPTED) if comparison.interrupted else ("ok", 0)
    if out is not None:
        failure = save_or_tell(lambda: command.save(out, data, comparison, request), out, output)
        status, code = failure or (status, code)
    output.finish(
        data, basis="simulated", status=status, show=lambda console: command.show(console, comparison)
    )
    raise typer.Exit(code)


def _prepare(out: Path | None, settings: "ZeroppConfig", command: str) -> None:
    if out is not None:
        from dtk.cli.out_folder import prepare_folder

        prepare_folder(out, settings, command)


def _settings(config: Path | None, assignments: list[str] | None, flags: dict[str, Any]) -> "ZeroppConfig":
    from dtk.cli.zeropp_errors import option_of
    from dtk.configuration import load_config
    from dtk.zeropp.config import ZeroppConfig

    try:
        return load_config(ZeroppConfig, file=config, assignments=assignments or (), flags=flags)
    except InputError as error:
        name = (error.field or "").partition(".")[0]
        if flags.get(name) is None:
            raise
        raise InputError(error.message, field=option_of(name), value=error.value, hint=error.hint) from error
