"""The settings of the attention kernel's benchmark."""

from typing import Annotated, Any, Literal, Self

import pydantic

from dtk.units import Seconds

__all__ = ["DTYPE_NAMES", "KernelBenchConfig"]

PositiveInt = Annotated[int, pydantic.Field(ge=1)]
GroupSize = Annotated[int, pydantic.Field(ge=1, le=16)]
DtypeName = Literal["fp32", "fp16", "bf16"]
DTYPE_NAMES: tuple[DtypeName, ...] = ("fp32", "fp16", "bf16")


class KernelBenchConfig(pydantic.BaseModel):
    """What `dtk scout bench kernel` measures.

    Attributes:
        batch: Sequences in a call.
        kv_heads: KV heads of a layer.
        group_sizes: Query heads that share a KV head; a row of results for each.
        head_dim: Channels of a head.
        selected_tokens: Tokens that each sequence attends to.
        context_tokens: Tokens of each sequence in the pool, from which blocks are selected at random.
        block_size: Tokens in a KV block.
        dtypes: Number formats of K/V and query; a row of results for each.
        repeats: Rounds at most; each round runs every contender once.
        time_budget_s: Time for all rounds; those of a row end with its share, three at the least.
        scaling: Also measure how time grows with the selected tokens, and whether it does with the context.
        scaling_tokens: The largest selection and context of that.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    batch: PositiveInt = 4
    kv_heads: PositiveInt = 8
    group_sizes: Annotated[tuple[GroupSize, ...], pydantic.Field(min_length=1)] = (1, 4)
    head_dim: PositiveInt = 128
    selected_tokens: PositiveInt = 2048
    context_tokens: PositiveInt = 16_384
    block_size: PositiveInt = 32
    dtypes: Annotated[tuple[DtypeName, ...], pydantic.Field(min_length=1)] = DTYPE_NAMES
    repeats: PositiveInt = 30
    time_budget_s: Seconds = 60.0
    scaling: bool = False
    scaling_tokens: PositiveInt = 65_536

    @pydantic.field_validator("group_sizes", "dtypes", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """Read `1,4` as the command line writes it, and a single value as a list of one."""
        if isinstance(value, str):
            return [part.strip() for part in value.split(",")]
        return value if isinstance(value, list | tuple) else [value]

    @pydantic.field_validator("group_sizes", "dtypes")
    @classmethod
    def _refuse_repeated(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) < len(values):
            raise ValueError("names a value twice")
        return values

    @pydantic.model_validator(mode="after")
    def _check_selection(self) -> Self:
        if self.selected_tokens > self.context_tokens:
            raise ValueError(
                f"selected_tokens={self.selected_tokens} is more than context_tokens={self.context_tokens}"
            )
        return self

    @property
    def time_budget_of_part_s(self) -> float:
        """The share of a row, or of one of the two series of the scaling."""
        return self.time_budget_s / (len(self.dtypes) * len(self.group_sizes) + 2 * self.scaling)

    @property
    def selected_blocks(self) -> int:
        """Blocks that a sequence attends to, the last one perhaps in part."""
        return -(-self.selected_tokens // self.block_size)

    @property
    def context_blocks(self) -> int:
        """Blocks of a sequence in the pool."""
        return -(-self.context_tokens // self.block_size)
