"""The options that `dtk zeropp schedule` and `dtk zeropp compare` share."""

from typing import Annotated

import typer

__all__ = [
    "ChunksOption",
    "EffortOption",
    "ForwardTimeOption",
    "GatherTimeOption",
    "GroupSizeOption",
    "InputGradTimeOption",
    "LookaheadOption",
    "MemoryChunksOption",
    "MicroBatchesOption",
    "NoSplitOption",
    "OptimizerTimeOption",
    "PipelineRanksOption",
    "ReduceOption",
    "ReduceTimeOption",
    "ResidentChunksOption",
    "ReverseBackwardOption",
    "TorchStageZeroOption",
    "TransferTimeOption",
    "UnitOption",
    "WeightGradTimeOption",
    "WeightOrderOption",
]

_SIZES = "Sizes"
_TIMES = "Times: one value, or one a stage with commas between them"
_OPTIONS = "Options of single schedules"
_PARAMETERS = "Sharded parameters"

PipelineRanksOption = Annotated[
    int | None, typer.Option("--pp", help="Pipeline ranks, P. (default: 4)", rich_help_panel=_SIZES)
]
ChunksOption = Annotated[
    int | None,
    typer.Option(
        "--chunks",
        help="Model chunks (stages) of a rank, V. (default: 2, or 1 where the schedule has one)",
        rich_help_panel=_SIZES,
    ),
]
MicroBatchesOption = Annotated[
    int | None,
    typer.Option(
        "--micro-batches", help="Micro-batches of an iteration, M. (default: 8)", rich_help_panel=_SIZES
    ),
]


def _time_option(name: str, what: str, default: str = "0s") -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(
        name, metavar="TIME,...", help=f"{what} (default: {default})", rich_help_panel=_TIMES
    )
    return info


ForwardTimeOption = Annotated[
    str | None, _time_option("--forward-time", "Forward of a chunk and a micro-batch, such as 18.5ms.", "1s")
]
InputGradTimeOption = Annotated[
    str | None, _time_option("--input-grad-time", "Gradient of the chunk's input.", "1s")
]
WeightGradTimeOption = Annotated[
    str | None, _time_option("--weight-grad-time", "Gradient of the chunk's weights.", "1s")
]
TransferTimeOption = Annotated[str | None, _time_option("--transfer-time", "A message to another rank.")]
GatherTimeOption = Annotated[str | None, _time_option("--gather-time", "Gathering a chunk's parameters.")]
ReduceTimeOption = Annotated[
    str | None, _time_option("--reduce-time", "Reduce-scattering a chunk's gradients.")
]
OptimizerTimeOption = Annotated[str | None, _time_option("--optimizer-time", "Optimizer step of a chunk.")]
TorchStageZeroOption = Annotated[
    bool | None,
    typer.Option(
        "--torch-stage-zero",
        help="Stage 0 does its whole backward in W, as in torch's split backward.",
        rich_help_panel=_TIMES,
    ),
]

UnitOption = Annotated[
    int | None,
    typer.Option(
        "--unit", help="Of zeropp: micro-batches of a unit, U. (default: 2P)", rich_help_panel=_OPTIONS
    ),
]
WeightOrderOption = Annotated[
    str | None,
    typer.Option(
        "--weight-order",
        metavar="lifo|fifo",
        help="Of zeropp: the newest weight gradient first, or the oldest. (default: lifo)",
        rich_help_panel=_OPTIONS,
    ),
]
NoSplitOption = Annotated[
    bool,
    typer.Option(
        "--no-split",
        help="Of zeropp: each weight gradient right after its input gradient.",
        rich_help_panel=_OPTIONS,
    ),
]
GroupSizeOption = Annotated[
    int | None,
    typer.Option(
        "--group-size",
        help="Of interleaved: micro-batches of a group, G. (default: P)",
        rich_help_panel=_OPTIONS,
    ),
]
ReverseBackwardOption = Annotated[
    bool | None,
    typer.Option(
        "--reverse-backward",
        help="Of bfs: backwards in torch's descending order of micro-batches.",
        rich_help_panel=_OPTIONS,
    ),
]
MemoryChunksOption = Annotated[
    int | None,
    typer.Option(
        "--memory-chunks",
        help="Of optimal: chunk activations that a rank may hold. (default: P * V, the peak of 1F1B)",
        rich_help_panel=_OPTIONS,
    ),
]
EffortOption = Annotated[
    int | None,
    typer.Option(
        "--effort",
        help="Of optimal: search until so many orders times actions are timed. (default: 300000000)",
        rich_help_panel=_OPTIONS,
    ),
]

ResidentChunksOption = Annotated[
    int | None,
    typer.Option(
        "--resident-chunks",
        help="Chunks of a rank that are gathered at once. (default: 1, or 2 for overlapped pairs)",
        rich_help_panel=_PARAMETERS,
    ),
]
LookaheadOption = Annotated[
    int | None,
    typer.Option(
        "--lookahead",
        help="Compute actions ahead of its first use that a gather may start. (default: 0)",
        rich_help_panel=_PARAMETERS,
    ),
]
ReduceOption = Annotated[
    str | None,
    typer.Option(
        "--reduce",
        metavar="unit|microbatch|end",
        help="When a chunk's gradients are reduced. (default: unit)",
        rich_help_panel=_PARAMETERS,
    ),
]
