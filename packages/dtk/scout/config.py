"""The settings of ScoutAttention, with the defaults chosen where the paper leaves a choice open."""

from typing import Annotated, Literal, Self

import pydantic

__all__ = ["ScoutConfig"]

PositiveInt = Annotated[int, pydantic.Field(ge=1)]


class ScoutConfig(pydantic.BaseModel):
    """Settings of the offloaded KV cache (ScoutAttention, sections 3.1 to 3.4).

    Attributes:
        budget_tokens: Tokens of K/V that each offloaded layer keeps on the device, forced blocks included and
            the partial tail block not; a multiple of `block_size`.
        block_size: Tokens in a KV block, the unit of selection and of copies.
        dense_layers: The first layers that keep their whole KV cache on the device. Layers 1 and 2 are badly
            predicted (their input is almost the raw embedding), so 3 is the default; the paper does not say.
        sink_blocks: Blocks at the start of a sequence that always stay on the device.
        recent_blocks: Newest full blocks that always stay on the device; the partial tail always does.
        device_scope: `resident`: the device attends to all resident blocks (the paper's Algorithm 1);
            `selected`: only to residents that are selected at this step (its section 3.2), which makes the
            output independent of what happens to be resident.
        predict_norm: Which layer norm the predicted query goes through: that of the `target` layer (closer to
            the real query) or of the `source` layer.
        host_query: The query of the host's share: `predicted` (the paper: starts a layer early) or `real`
            (closer to dense attention, starts only when the layer itself runs).
        selection: One block selection for the whole `layer`, or one for each `kv_head`.
        score_reduction: How the scores of the query heads that share a selection combine.
        recall_interval: Decode steps from one recall to the next: one number, or one for each offloaded
            layer; `never` (or null) does not recall. The paper's mean interval is 8.7.
        track_query_cosine: Measure how close the predicted query comes to the real one.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    budget_tokens: PositiveInt = 2048
    block_size: PositiveInt = 32
    dense_layers: Annotated[int, pydantic.Field(ge=0)] = 3
    sink_blocks: Annotated[int, pydantic.Field(ge=0)] = 1
    recent_blocks: Annotated[int, pydantic.Field(ge=0)] = 1
    device_scope: Literal["resident", "selected"] = "resident"
    predict_norm: Literal["target", "source"] = "target"
    host_query: Literal["predicted", "real"] = "predicted"
    selection: Literal["layer", "kv_head"] = "layer"
    score_reduction: Literal["sum", "max"] = "sum"
    recall_interval: PositiveInt | tuple[PositiveInt, ...] | None = 8
    track_query_cosine: bool = True

    @pydantic.field_validator("recall_interval", mode="before")
    @classmethod
    def _read_never(cls, value: object) -> object:
        # TOML and the command line have no null.
        return None if value in ("never", "none", "null") else value

    @pydantic.model_validator(mode="after")
    def _check_budget(self) -> Self:
        if self.budget_tokens % self.block_size:
            raise ValueError(
                f"budget_tokens={self.budget_tokens} is not a multiple of block_size={self.block_size}"
            )
        forced = self.sink_blocks + self.recent_blocks
        if self.budget_blocks < forced:
            raise ValueError(
                f"budget_tokens={self.budget_tokens} is below the forced blocks: "
                f"{self.sink_blocks} sink and {self.recent_blocks} recent blocks of {self.block_size} tokens "
                f"need at least {forced * self.block_size}"
            )
        return self

    @property
    def budget_blocks(self) -> int:
        """Blocks that fit into the budget (the paper's k)."""
        return self.budget_tokens // self.block_size
