"""The options of `dtk zeropp plan`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "RECIPE_NAMES",
    "STACK_NAMES",
    "CheckOption",
    "ChunksPin",
    "ClusterOption",
    "GlobalBatchOption",
    "GlobalBatchTokensOption",
    "HardwareOption",
    "HybridPin",
    "KeepLastPin",
    "MemoryOption",
    "MicroBatchPin",
    "ModelOption",
    "NoFlashOption",
    "PipelinePin",
    "RecipeOption",
    "RecomputationPin",
    "ResidentPin",
    "RivalsOption",
    "RunnersUpOption",
    "SequenceTokensOption",
    "ShardRanksPin",
    "SplitPin",
    "StackOption",
    "TimeBudgetOption",
    "UnitPin",
]

# Written out, since help must not wait for what knows them; a test compares.
RECIPE_NAMES = (
    "adam-fp32-gradients",
    "adam-16bit-gradients",
    "adam-fp32",
    "adam-pure-16bit",
    "adam-8bit",
    "sgd-momentum-fp32",
)
STACK_NAMES = ("megatron", "megatron-overlapped", "torch-fsdp2", "torch-fsdp2-eager")

_WHAT = "What is planned"
_PINS = "Options of the plan: each is searched unless given"
_SEARCH = "Search"

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A name such as gpt3-13b or llama3-70b ('--model list' shows all), a TOML or YAML file, "
        "or a Hugging Face config.json or its folder.",
        rich_help_panel=_WHAT,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="A cluster of 'dtk hardware list --kind cluster', or NODExCOUNT, a node of "
        "'dtk hardware list --kind node' times their number, such as DGX-A100x8.",
        rich_help_panel=_WHAT,
    ),
]
HardwareOption = Annotated[
    Path | None,
    typer.Option(
        "--hardware",
        help="Your own hardware beside dtk's: TOML or YAML of the same form.",
        rich_help_panel=_WHAT,
    ),
]
GlobalBatchOption = Annotated[
    int | None, typer.Option("--global-batch", help="Sequences of an iteration, B.", rich_help_panel=_WHAT)
]
GlobalBatchTokensOption = Annotated[
    int | None,
    typer.Option("--global-batch-tokens", help="The same in tokens, instead.", rich_help_panel=_WHAT),
]
SequenceTokensOption = Annotated[
    int | None,
    typer.Option("--sequence-tokens", help="Tokens of a sequence, s. (default: 2048)", rich_help_panel=_WHAT),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help=f"Precision and optimizer: {', '.join(RECIPE_NAMES)}. (default: {RECIPE_NAMES[0]})",
        rich_help_panel=_WHAT,
    ),
]
NoFlashOption = Annotated[
    bool, typer.Option("--no-flash-attention", help="Attention keeps its scores.", rich_help_panel=_WHAT)
]
StackOption = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="NAME",
        help="The software, whose overheads and overlaps the times have: "
        f"{', '.join(STACK_NAMES)}. (default: {STACK_NAMES[0]})",
        rich_help_panel=_WHAT,
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="What a rank may hold, such as 40GiB. (default: 95 % of the chip's memory)",
        rich_help_panel=_WHAT,
    ),
]
PipelinePin = Annotated[
    int | None,
    typer.Option(
        "--pp",
        help="Pipeline ranks, P; 1, which is plain sharding, is planned only if given.",
        rich_help_panel=_PINS,
    ),
]
ChunksPin = Annotated[
    int | None, typer.Option("--chunks", help="Chunks of a rank, V.", rich_help_panel=_PINS)
]
UnitPin = Annotated[
    str | None,
    typer.Option(
        "--unit", metavar="N|auto", help="Micro-batches of a unit, U. (default: auto)", rich_help_panel=_PINS
    ),
]
ShardRanksPin = Annotated[
    int | None,
    typer.Option("--shard-ranks", help="Ranks of a group that shards everything, D.", rich_help_panel=_PINS),
]
MicroBatchPin = Annotated[
    int | None, typer.Option("--micro-batch", help="Sequences of a micro-batch, b.", rich_help_panel=_PINS)
]
RecomputationPin = Annotated[
    str | None, typer.Option("--recomputation", help="none, selective or full.", rich_help_panel=_PINS)
]
KeepLastPin = Annotated[
    bool | None,
    typer.Option(
        "--keep-last-chunk/--no-keep-last-chunk",
        help="Spare the last stage from full recomputation.",
        rich_help_panel=_PINS,
    ),
]
SplitPin = Annotated[
    bool | None,
    typer.Option(
        "--split/--no-split", help="Keep weight gradients back to fill idle time.", rich_help_panel=_PINS
    ),
]
HybridPin = Annotated[
    str | None,
    typer.Option(
        "--hybrid",
        help="What replicas of a group do: zero3-dp or zero3-zero1 (shard optimizer states among them).",
        rich_help_panel=_PINS,
    ),
]
ResidentPin = Annotated[
    int | None,
    typer.Option(
        "--resident-chunks", help="Chunks of a rank gathered at once, 1 or 2.", rich_help_panel=_PINS
    ),
]
RivalsOption = Annotated[
    str | None,
    typer.Option(
        "--rivals",
        metavar="NAME,...",
        help="Compare with these methods; all or none. (default: all)",
        rich_help_panel=_SEARCH,
    ),
]
RunnersUpOption = Annotated[
    int | None,
    typer.Option("--runners-up", help="Other plans to tell of. (default: 4)", rich_help_panel=_SEARCH),
]
TimeBudgetOption = Annotated[
    str | None,
    typer.Option(
        "--time-budget",
        metavar="TIME",
        help="Stop then with the best so far, such as 60s. (default: search to the end)",
        rich_help_panel=_SEARCH,
    ),
]
CheckOption = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Only say whether a plan with the given options fits; exit code 1 if none does.",
        rich_help_panel=_SEARCH,
    ),
]
