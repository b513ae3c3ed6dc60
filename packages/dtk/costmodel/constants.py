"""What chips and training software reach of their limits: constants from files, each with its source.

A constant is either known (a publication, a data sheet, the definition of a method), fitted to published
measurements, or an estimate. `count_fitted` says how many of the second kind a prediction rests on,
`count_borrowed` how many estimates are values that were fitted for another chip or other software.
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final, Literal, TypeVar

import pydantic

from dtk.configuration import validate
from dtk.errors import InputError

__all__ = [
    "DEFAULT_STACK",
    "ChipConstants",
    "Constant",
    "GeneralConstants",
    "StackConstants",
    "chip_constants",
    "count_borrowed",
    "count_fitted",
    "general_constants",
    "stack_constants",
]

DEFAULT_STACK: Final = "megatron"
"""The software that predictions are for unless told otherwise."""

Origin = Literal["published", "fitted", "estimate"]
Share = Annotated[float, pydantic.Field(gt=0, le=1)]
Time = Annotated[float, pydantic.Field(ge=0, lt=10)]
ConstantsT = TypeVar("ConstantsT", bound="_Constants")


class Constant(pydantic.BaseModel):
    """Where a constant comes from.

    Attributes:
        origin: Taken from a publication, fitted to published measurements, or estimated.
        source: Which publication, which measurements, or what the estimate rests on.
        borrowed_from: Of an estimate that is the value fitted for another set, that set.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    origin: Origin
    source: Annotated[str, pydantic.Field(min_length=1)]
    borrowed_from: str | None = None


class _Constants(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    name: str
    origins: dict[str, Constant]

    @pydantic.model_validator(mode="after")
    def _each_has_an_origin(self) -> "_Constants":
        constants = set(type(self).model_fields) - {"name", "origins", "chips"}
        if missing := constants ^ set(self.origins):
            raise InputError(f"{self.name}: constants and origins differ", value=", ".join(sorted(missing)))
        return self

    @property
    def fitted(self) -> tuple[str, ...]:
        """The constants that were fitted."""
        return tuple(name for name, constant in self.origins.items() if constant.origin == "fitted")

    @property
    def borrowed(self) -> tuple[str, ...]:
        """The estimates that are values fitted for another set."""
        return tuple(name for name, constant in self.origins.items() if constant.borrowed_from)


class ChipConstants(_Constants):
    """What a chip reaches.

    Attributes:
        name: What to call the set.
        chips: The chips of the hardware catalogue that it describes.
        matmul_share: Of the peak rate, large products of matrices.
        matmul_half_depth: The inner dimension k at which a product reaches half of that: its share is
            k / (k + matmul_half_depth), since each tile is started and written once.
        attention_share: Of the peak rate, fused attention (flash attention).
        memory_share: Of the memory rate, operations that only read and write.
        kernel_s: What each kernel takes besides.
        fabric_share: Of the rate between the chips of a node, collectives with large messages.
        network_share: Of the rate of the NICs, collectives and transfers with large messages.
    """

    chips: tuple[str, ...]
    matmul_share: Share
    matmul_half_depth: Annotated[float, pydantic.Field(ge=0)]
    attention_share: Share
    memory_share: Share
    kernel_s: Time
    fabric_share: Share
    network_share: Share


class StackConstants(_Constants):
    """What training software adds.

    Attributes:
        name: What to call it.
        host_layer_s: What the host takes to launch a layer's forward, or its backward: no pass is shorter.
        host_collective_s: The same, for each collective in it.
        host_micro_batch_s: What the host takes on each rank for each micro-batch besides.
        host_iteration_s: What the host takes for each iteration besides.
        collective_s: What each collective takes besides its messages, times log2 of its ranks.
        transfer_s: What each message between stages takes besides.
        overlap_tensor_parallel: Whether weight gradients hide the all-reduce of input gradients.
        overlap_data_parallel: The share of the gradients' reduction that hides behind the backward pass.
        overlap_slowdown: By how much compute takes longer while weights are gathered or gradients reduced
            beside it.
        stream_factor: How often operations that only read and write are done over, against kernels that read
            and write everything once.
        selective_products: Of a layer's products with weights, the share that selective recomputation runs
            again, with all between them but fused attention; of the bytes it keeps what torch does where that
            is every second (`dtk.workload.activations`). 0 where it runs the attention core again.
    """

    host_layer_s: Time
    host_collective_s: Time
    host_micro_batch_s: Time
    host_iteration_s: Time
    collective_s: Time
    transfer_s: Time
    overlap_tensor_parallel: Annotated[bool, pydantic.Field(strict=True)]
    overlap_data_parallel: Annotated[float, pydantic.Field(ge=0, le=1)]
    overlap_slowdown: Annotated[float, pydantic.Field(ge=0, le=10)]
    stream_factor: Annotated[float, pydantic.Field(ge=1, le=100)]
    selective_products: Annotated[float, pydantic.Field(ge=0, le=1)]


class GeneralConstants(_Constants):
    """What is counted alike on every chip and with all software.

    Attributes:
        name: What to call the set.
        loss_bytes_per_logit: What the loss reads and writes, forward and backward.
        usable_memory_share: Of the device memory, what a rank may hold.
        reserve_bytes: Context, communication buffers and library workspaces of a rank.
    """

    loss_bytes_per_logit: Annotated[int, pydantic.Field(ge=1, le=1000)]
    usable_memory_share: Share
    reserve_bytes: Annotated[int, pydantic.Field(ge=0, le=2**40)]


def chip_constants(chip: str) -> ChipConstants:
    """Return the constants of a chip of the hardware catalogue; those named `default` if it has none."""
    sets = _chips()
    return next((each for each in sets.values() if chip in each.chips), sets["default"])


def stack_constants(name: str = DEFAULT_STACK) -> StackConstants:
    """Return the constants of training software.

    Raises:
        InputError: If there are none of that name.
    """
    sets = _stacks()
    if name not in sets:
        raise InputError(
            "unknown training software", field="stack", value=name, hint=f"one of {', '.join(sets)}"
        )
    return sets[name]


def count_fitted(*sets: ChipConstants | StackConstants) -> int:
    """Return how many constants of these sets were fitted."""
    return sum(len(each.fitted) for each in sets)


def count_borrowed(*sets: ChipConstants | StackConstants) -> int:
    """Return how many estimates of these sets are values that were fitted for another set."""
    return sum(len(each.borrowed) for each in sets)


@cache
def general_constants() -> GeneralConstants:
    """Return what holds for every chip and all software."""
    (only,) = _read(GeneralConstants, "general").values()
    return only


@cache
def _chips() -> dict[str, ChipConstants]:
    return _read(ChipConstants, "chips")


@cache
def _stacks() -> dict[str, StackConstants]:
    return _read(StackConstants, "stacks")


def _read(kind: type[ConstantsT], table: str) -> dict[str, ConstantsT]:
    """Read a packaged file: `[[table]]` entries, whose `like` names the entry that they start from."""
    text = resources.files("dtk.costmodel").joinpath("constants", f"{table}.toml").read_text(encoding="utf-8")
    raw: dict[str, dict[str, Any]] = {}
    for entry in tomllib.loads(text)[table]:
        base = raw.get(entry.pop("like", ""), {})
        own = entry.pop("origins", {})
        for name, origin in own.items():
            # A value that is taken over with another label stays one that was fitted.
            before = base.get("origins", {}).get(name, {})
            if origin["origin"] == "estimate" and name not in entry:
                lender = base["name"] if before.get("origin") == "fitted" else before.get("borrowed_from")
                origin["borrowed_from"] = lender
        origins = dict(base.get("origins", {})) | own
        raw[entry["name"]] = {**base, **entry, "origins": origins}
    return {name: validate(kind, values) for name, values in raw.items()}
