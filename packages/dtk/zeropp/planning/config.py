"""The settings of `dtk zeropp plan`."""

from pathlib import Path
from typing import Annotated, Final, Literal, Self

import pydantic

from dtk.costmodel.constants import DEFAULT_STACK, stack_constants
from dtk.errors import InputError
from dtk.units import Bytes, Seconds
from dtk.workload.flops import Recomputation
from dtk.workload.states import recipe
from dtk.zeropp.planning.problem import RIVALS, Hybrid, Pins

__all__ = ["PlanConfig"]

_MAX: Final = 2**40
Positive = Annotated[int, pydantic.Field(ge=1, le=_MAX)]


class PlanConfig(pydantic.BaseModel):
    """What is to be planned, and which options are given; the search decides on the others.

    Attributes:
        model: A name that dtk knows, a TOML or YAML file, or a Hugging Face config.json or its folder.
        cluster: A cluster that dtk or the hardware file knows, or NODExCOUNT, such as DGX-A100x8.
        hardware: A file of your own hardware, in the form of dtk's catalogue.
        global_batch: Sequences of an iteration, B.
        global_batch_tokens: The same in tokens, instead.
        sequence_tokens: Tokens of a sequence, s.
        recipe: Precision and optimizer by name.
        flash_attention: Whether attention keeps no scores.
        dropout: Whether attention, MLP and embedding have dropout.
        profiles: A file of measured times of layers, which take the roofline's place; configurations that it
            does not cover are left out.
        stack: The software, whose overheads and overlaps the times have.
        memory: What a rank may hold; without a value 95 % of the chip's memory.
        pp: Pipeline ranks, P; without a value searched, as all options below.
        chunks: Chunks of a rank, V.
        unit: Micro-batches of a unit, U; auto is what time and memory choose.
        shard_ranks: Ranks of a group that shards everything, D.
        micro_batch: Sequences of a micro-batch, b.
        max_micro_batch: The largest micro-batch that is tried.
        recomputation: What the backward pass computes again.
        hybrid: Whether replicas of a group keep the same optimizer shards, or shard these among them.
        resident_chunks: Chunks of a rank that are gathered at once.
        split: Whether weight gradients are kept back.
        keep_last_chunk: Whether full recomputation spares the last stage.
        rivals: The methods to compare with; none for no comparison.
        runners_up: How many other plans to tell of.
        time_budget_s: When to stop the search and take the best so far.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    cluster: str | None = None
    hardware: Path | None = None
    global_batch: Positive | None = None
    global_batch_tokens: Positive | None = None
    sequence_tokens: Positive = 2048
    recipe: str = "adam-fp32-gradients"
    flash_attention: bool = True
    dropout: bool = False
    profiles: Path | None = None
    stack: str = DEFAULT_STACK
    memory: Annotated[Bytes, pydantic.Field(ge=1)] | None = None
    pp: Positive | None = None
    chunks: Positive | None = None
    unit: Positive | Literal["auto"] = "auto"
    shard_ranks: Positive | None = None
    micro_batch: Positive | None = None
    max_micro_batch: Positive = 16
    recomputation: Recomputation | None = None
    hybrid: Hybrid | None = None
    resident_chunks: Annotated[int, pydantic.Field(ge=1, le=2)] | None = None
    split: bool | None = None
    keep_last_chunk: bool | None = None
    rivals: tuple[str, ...] = RIVALS
    runners_up: Annotated[int, pydantic.Field(ge=0, le=100)] = 4
    time_budget_s: Annotated[Seconds, pydantic.Field(gt=0)] | None = None

    @pydantic.field_validator("unit", mode="before")
    @classmethod
    def _read_unit(cls, value: object) -> object:
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @pydantic.field_validator("rivals", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        if isinstance(value, str):
            names = tuple(part.strip() for part in value.split(",") if part.strip())
            return RIVALS if names == ("all",) else () if names == ("none",) else names
        return value

    @pydantic.field_validator("rivals")
    @classmethod
    def _check_rivals(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for name in values:
            if name not in RIVALS:
                hint = f"all, none, or some of {', '.join(RIVALS)}"
                raise InputError(f"there is no method {name!r}", value=",".join(values), hint=hint)
        return tuple(dict.fromkeys(values))

    @pydantic.field_validator("recipe")
    @classmethod
    def _check_recipe(cls, value: str) -> str:
        return recipe(value).name

    @pydantic.field_validator("stack")
    @classmethod
    def _check_stack(cls, value: str) -> str:
        return stack_constants(value).name

    @pydantic.model_validator(mode="after")
    def _check_batch(self) -> Self:
        if self.global_batch is not None and self.global_batch_tokens is not None:
            raise ValueError("give global_batch or global_batch_tokens, not both")
        return self

    @property
    def pins(self) -> Pins:
        """The options that are given."""
        return Pins(
            pipeline_parallel=self.pp,
            chunks=self.chunks,
            unit=None if self.unit == "auto" else self.unit,
            shard_ranks=self.shard_ranks,
            micro_batch=self.micro_batch,
            recomputation=self.recomputation,
            hybrid=self.hybrid,
            resident_chunks=self.resident_chunks,
            split=self.split,
            keep_last_chunk=self.keep_last_chunk,
        )
