"""What is to be planned: a model, a batch, a machine, a memory, and the options that are not free."""

from dataclasses import dataclass, field
from typing import Final, Literal

from dtk.costmodel.constants import StackConstants
from dtk.costmodel.machine import Machine
from dtk.costmodel.profiles import ModelProfile
from dtk.workload.flops import Recomputation
from dtk.workload.transformer import TransformerShape

__all__ = ["RIVALS", "ZEROPP", "Hybrid", "Pins", "PlanProblem"]

ZEROPP: Final = "zeropp"
RIVALS: Final = ("3d", "3d-tp", "fsdp", "bfs", "1f1b-zero3", "interleaved-zero3", "zb-h1", "zb-v")
"""The names of the methods that ZeroPP is compared with (`dtk.zeropp.planning.methods`)."""

Hybrid = Literal["zero3-dp", "zero3-zero1"]
"""What replicas of a sharding group do: keep the same optimizer shards, or shard these among them too."""


@dataclass(frozen=True, slots=True)
class Pins:
    """Options that are given; None leaves one to the search.

    Attributes:
        pipeline_parallel: P.
        chunks: V.
        unit: U.
        shard_ranks: D.
        micro_batch: b.
        recomputation: What the backward pass computes again.
        hybrid: What replicas do.
        resident_chunks: Chunks of a rank that are gathered at once.
        split: Whether weight gradients are kept back.
        keep_last_chunk: Whether the last stage keeps its activations under full recomputation.
    """

    pipeline_parallel: int | None = None
    chunks: int | None = None
    unit: int | None = None
    shard_ranks: int | None = None
    micro_batch: int | None = None
    recomputation: Recomputation | None = None
    hybrid: Hybrid | None = None
    resident_chunks: int | None = None
    split: bool | None = None
    keep_last_chunk: bool | None = None


@dataclass(frozen=True)
class PlanProblem:
    """A model, a batch and a machine.

    Attributes:
        shape: The model.
        machine: Where it is trained.
        stack: With what software.
        global_batch: Sequences of an iteration, B.
        sequence_tokens: Tokens of each, s.
        limit_bytes: What a rank may hold.
        recipe: Precision and optimizer by name.
        flash_attention: Whether attention keeps no scores.
        dropout: Whether attention, MLP and embedding have dropout.
        pins: Options of ZeroPP that are given.
        max_micro_batch: The largest micro-batch that is tried.
        profiles: Measured times of layers. If there are any, what they do not cover is left out.
    """

    shape: TransformerShape
    machine: Machine
    stack: StackConstants
    global_batch: int
    sequence_tokens: int
    limit_bytes: int
    recipe: str = "adam-fp32-gradients"
    flash_attention: bool = True
    dropout: bool = False
    pins: Pins = field(default_factory=Pins)
    max_micro_batch: int = 16
    profiles: tuple[ModelProfile, ...] = ()
