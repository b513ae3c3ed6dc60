"""The settings of `dtk zeropp schedule` and `dtk zeropp compare`: sizes, options and costs."""

from typing import Annotated, Any, Final, Literal, Self

import pydantic

from dtk.errors import InputError
from dtk.pipeline.costs import MAX_TIME_NS, StageCosts
from dtk.pipeline.generators.registry import SCHEDULES
from dtk.pipeline.schedule import MAX_ACTIONS
from dtk.units import Seconds

__all__ = ["OPTIMAL", "SCHEDULE_NAMES", "ZeroppConfig"]

OPTIMAL: Final = "optimal"
SCHEDULE_NAMES: Final = (*SCHEDULES, OPTIMAL)
"""The named schedules, and `optimal`, which is searched for."""

_MAX_TIME_S = MAX_TIME_NS // 10**9
_TIMES: Final = {
    "forward_time_s": ("forward_ns",),
    "input_grad_time_s": ("input_grad_ns",),
    "weight_grad_time_s": ("weight_grad_ns",),
    "transfer_time_s": ("activation_transfer_ns", "gradient_transfer_ns"),
    "gather_time_s": ("unshard_ns",),
    "reduce_time_s": ("reduce_grad_ns",),
    "optimizer_time_s": ("optimizer_ns",),
}
"""The keys of times, with the costs of a stage that they give."""

PositiveInt = Annotated[int, pydantic.Field(ge=1)]
Times = Annotated[tuple[Seconds, ...], pydantic.Field(min_length=1)]


class ZeroppConfig(pydantic.BaseModel):
    """What pipeline schedules are made of, and what their actions cost.

    Attributes:
        schedule: Of `dtk zeropp schedule`, the schedule.
        schedules: Of `dtk zeropp compare`, the schedules.
        pp: Pipeline ranks, P.
        chunks: Model chunks of a rank, V; without a value 2 where the schedule can have 2, otherwise 1.
        micro_batches: Micro-batches of an iteration, M.
        unit: Of zeropp, the micro-batches of a unit, U; without a value 2P.
        group_size: Of interleaved, the micro-batches of a group, G; without a value P.
        weight_order: Of zeropp, whether the newest weight gradient runs first (lifo) or the oldest (fifo).
        split: Of zeropp, whether weight gradients are kept back to fill idle time.
        reverse_backward: Of bfs, whether backwards run in torch's descending order of micro-batches.
        memory_chunks: Of optimal, how many chunk activations a rank may hold; without a value P * V, the most
            that a rank of 1F1B holds.
        effort: Of optimal, when the search ends: after so many orders times actions.
        forward_time_s: The forward of a chunk and a micro-batch; here and below one value, or one a stage.
        input_grad_time_s: The gradient of the chunk's input.
        weight_grad_time_s: The gradient of the chunk's weights. A full backward takes both times.
        transfer_time_s: A message with an activation or a gradient to another rank.
        gather_time_s: Gathering a stage's parameters.
        reduce_time_s: Reducing a stage's gradients.
        optimizer_time_s: The optimizer step of a stage.
        torch_stage_zero: Whether stage 0 does its whole backward in its weight gradient, as torch does.
        resident_chunks: How many stages of a rank are gathered at once; without a value 1, or 2 where pairs
            of actions need two.
        lookahead: How many compute actions ahead of its first use a gather may start.
        reduce: When gradients are reduced: once a unit, after every micro-batch, or at the end.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    schedule: str = "zeropp"
    schedules: Annotated[tuple[str, ...], pydantic.Field(min_length=1)] = SCHEDULE_NAMES
    pp: PositiveInt = 4
    chunks: PositiveInt | None = None
    micro_batches: PositiveInt = 8
    unit: PositiveInt | None = None
    group_size: PositiveInt | None = None
    weight_order: Literal["lifo", "fifo"] = "lifo"
    split: bool = True
    reverse_backward: bool = False
    memory_chunks: Annotated[int, pydantic.Field(ge=1, le=10**9)] | None = None
    effort: Annotated[int, pydantic.Field(ge=1, le=10**18)] = 300_000_000
    forward_time_s: Times = (1.0,)
    input_grad_time_s: Times = (1.0,)
    weight_grad_time_s: Times = (1.0,)
    transfer_time_s: Times = (0.0,)
    gather_time_s: Times = (0.0,)
    reduce_time_s: Times = (0.0,)
    optimizer_time_s: Times = (0.0,)
    torch_stage_zero: bool = False
    resident_chunks: PositiveInt | None = None
    lookahead: Annotated[int, pydantic.Field(ge=0)] = 0
    reduce: Literal["unit", "microbatch", "end"] = "unit"

    @pydantic.field_validator("schedules", *_TIMES, mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any) -> Any:
        """Read `1s,2s` as the command line writes it, and a single value as a list of one."""
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        values = value if isinstance(value, list | tuple) else [value]
        # In words of its own: to the reader of units, a sign is no part of a figure.
        for one in values:
            if isinstance(one, str) and one.startswith("-"):
                raise InputError("must not be negative", value=one)
        return values

    @pydantic.field_validator(*_TIMES)
    @classmethod
    def _check_nanoseconds(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        for value in values:
            if value > _MAX_TIME_S:
                raise InputError(f"must be {_MAX_TIME_S} s at most", value=value)
            if abs(value * 1e9 - _nanoseconds(value)) > 1e-3:
                raise InputError("is not a whole number of nanoseconds", value=value)
        return values

    @pydantic.field_validator("schedule")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if value not in SCHEDULE_NAMES:
            raise InputError("no such schedule", value=value, hint=f"one of {', '.join(SCHEDULE_NAMES)}")
        return value

    @pydantic.field_validator("schedules")
    @classmethod
    def _check_names(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        if values == ("all",):
            return SCHEDULE_NAMES
        for name in values:
            if name not in SCHEDULE_NAMES:
                hint = f"all, or some of {', '.join(SCHEDULE_NAMES)}"
                raise InputError(f"there is no schedule {name!r}", value=values, hint=hint)
        if len(set(values)) < len(values):
            raise InputError("names a schedule twice", value=values)
        return values

    @pydantic.model_validator(mode="after")
    def _check_size(self) -> Self:
        if 3 * self.pp * (self.chunks or 1) * self.micro_batches > MAX_ACTIONS:
            sizes = f"pp={self.pp}, chunks={self.chunks or 1} and micro_batches={self.micro_batches}"
            raise ValueError(f"{sizes} make more than {MAX_ACTIONS} actions")
        return self

    def num_chunks_of(self, schedule: str) -> int:
        """Return V of a schedule: as given, or what suits it."""
        if self.chunks is not None:
            return self.chunks
        return 2 if schedule == OPTIMAL or SCHEDULES[schedule].takes(2) else 1

    def costs(self, num_stages: int) -> StageCosts:
        """Return the costs of that many stages.

        Raises:
            InputError: If a list has another length.
        """
        costs = {
            cost: _spread(key, getattr(self, key), num_stages)
            for key, given in _TIMES.items()
            for cost in given
        }
        return StageCosts.of(num_stages, **costs)


def _spread(key: str, seconds: tuple[float, ...], num_stages: int) -> tuple[int, ...]:
    if len(seconds) not in (1, num_stages):
        raise InputError(
            f"has {len(seconds)} values for {num_stages} stages",
            field=key,
            value=",".join(f"{value:g}s" for value in seconds),
            hint="give one value, or one a stage",
        )
    values = tuple(map(_nanoseconds, seconds))
    return values if len(values) == num_stages else values * num_stages


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
