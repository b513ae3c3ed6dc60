"""A training run as the cost model sees it: model, batch, machine, software, layout and schedule."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

from dtk.costmodel.collectives import Communication
from dtk.costmodel.constants import StackConstants
from dtk.costmodel.machine import Machine
from dtk.costmodel.placement import RankGroup, place_group
from dtk.costmodel.profiles import Conditions, ModelProfile, find_profile
from dtk.costmodel.roofline import Roofline
from dtk.errors import InputError
from dtk.hardware.model import Precision
from dtk.workload.activations import ActivationSettings, Selective
from dtk.workload.job import Layout, TrainingJob, check_layout
from dtk.workload.states import Sharding
from dtk.workload.transformer import TransformerShape

__all__ = ["FSDP", "ScheduleChoice", "TrainingRun"]

FSDP: Final = "fsdp"
"""The schedule of a single stage that gathers layer by layer, micro-batch after micro-batch."""

_BELOW_16_BITS: Final = frozenset({"fp8", "fp4", "int8"})

_SPLITTING: Final = frozenset({"zb-h1", "zb-h2", "zb-v", "dualpipe-v", "zeropp"})


@dataclass(frozen=True, slots=True)
class ScheduleChoice:
    """Which schedule, and how it handles sharded parameters.

    Attributes:
        name: A name of `dtk.pipeline.generators.registry.SCHEDULES`, or `fsdp`.
        unit: Of zeropp, U.
        group_size: Of interleaved, G.
        split: Of zeropp, whether weight gradients are kept back.
        resident_chunks: Under sharded weights, how many chunks of a rank are gathered at once.
        reduce: Under sharded weights, when gradients are reduced.
        gather: Under sharded weights, whether a chunk is gathered once for all passes that follow each other
            on it, or for every pass of every micro-batch, layer by layer, and freed as it goes (`pass`).
    """

    name: str = "1f1b"
    unit: int | None = None
    group_size: int | None = None
    split: bool = True
    resident_chunks: int = 1
    reduce: Literal["unit", "microbatch", "end"] = "unit"
    gather: Literal["visit", "pass"] = "visit"

    @property
    def splits_backward(self) -> bool:
        """Whether input and weight gradients run apart."""
        return self.name in _SPLITTING and (self.split or self.name != "zeropp")


@dataclass(frozen=True)
class TrainingRun:
    """One iteration of training, fully described.

    Attributes:
        shape: The model.
        job: Batch, sequence, precision recipe, recomputation.
        layout: Ranks and chunks.
        machine: Where it runs; its chips are as many as the layout's ranks.
        stack: The software.
        sharding: How model states are spread over the data-parallel ranks: nothing (0), the optimizer (1), or
            all (3), the last over groups of `sharding.ranks` that are replicated.
        schedule: The pipeline schedule.
        precision: Of the products' operands; by default 16 bits of the kind that the chip has, or fp32 with a
            recipe of fp32. Below 16 bits nothing is modelled.
        replicas_outermost: Whether replicas of a sharded group lie outside the pipeline.
        keep_last_chunk: Whether the last stage of all keeps its activations under full recomputation, as in
            the first author's implementation of ZeroPP: its backward follows its forward at once.
        layers_per_stage: Layers of each stage from the first to the last; by default all the same.
        profiles: Measured times of layers. If there are any, the one that holds for the run takes the
            roofline's place.
    """

    shape: TransformerShape
    job: TrainingJob
    layout: Layout
    machine: Machine
    stack: StackConstants
    sharding: Sharding = field(default_factory=Sharding)
    schedule: ScheduleChoice = field(default_factory=ScheduleChoice)
    precision: Precision | None = None
    replicas_outermost: bool = False
    keep_last_chunk: bool = False
    layers_per_stage: tuple[int, ...] | None = None
    profiles: tuple[ModelProfile, ...] = ()

    def __post_init__(self) -> None:
        """Check that the layout cuts model, batch and machine.

        Raises:
            InputError: For the first size that does not fit.
        """
        if self.layout.num_ranks != self.machine.num_chips:
            chips = f"the {self.machine.num_chips} chips of {self.machine.name}"
            message = f"makes {self.layout.num_ranks} ranks of {chips}"
            raise InputError(message, field="layout", value=_layout_text(self.layout))
        if self.precision in _BELOW_16_BITS:
            # Attention stays in 16 bits there, and the chips' shares are those of 16 bits.
            hint = "bf16, fp16, tf32 or fp32"
            raise InputError("is not modelled yet", field="precision", value=self.precision, hint=hint)
        uneven = self.layers_per_stage is not None
        check_layout(self.shape, self.job, self.layout, even_stages=not uneven)
        if self.layers_per_stage is not None and len(self.layers_per_stage) != self.layout.num_stages:
            message = f"must name the layers of {self.layout.num_stages} stages"
            raise InputError(message, field="layers_per_stage", value=list(self.layers_per_stage))
        sharding, ranks = self.sharding, self.layout.data_parallel
        if sharding.stage == 2:
            hint = "1 shards the optimizer, 3 everything"
            raise InputError("is not modelled", field="sharding_stage", value=2, hint=hint)
        if sharding.stage and ranks % sharding.ranks:
            message = f"must divide the {ranks} data-parallel ranks"
            raise InputError(message, field="sharding_ranks", value=sharding.ranks)
        replicas = sharding.optimizer_replicas
        if replicas > 1 and (sharding.stage != 3 or replicas != self.num_replicas):
            message = f"must be 1, or under sharding stage 3 the {self.num_replicas} replicas of a group"
            raise InputError(message, field="optimizer_replicas", value=replicas)

    @property
    def num_microbatches(self) -> int:
        """M, micro-batches of each pipeline."""
        return self.job.num_microbatches(self.layout.data_parallel)

    @cached_property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of each stage."""
        if self.layers_per_stage is not None:
            return self.layers_per_stage
        return (self.shape.num_layers // self.layout.num_stages,) * self.layout.num_stages

    @cached_property
    def settings(self) -> ActivationSettings:
        """How a micro-batch is run."""
        selective: Selective = "products" if self.stack.selective_products else "core"
        return replace(self.job.activation_settings(self.layout), selective=selective)

    @cached_property
    def roofline(self) -> Roofline:
        """The chip in this precision."""
        element = self.job.precision.element_bytes
        return Roofline(
            self.machine.chip,
            self.machine.constants,
            self.precision or self._precision(),
            element,
            self.stack.stream_factor,
        )

    @cached_property
    def profile(self) -> ModelProfile | None:
        """The measured times that stand for the roofline's, if any were given.

        Raises:
            InputError: If some were given and none holds for the run.
        """
        if not self.profiles:
            return None
        roofline = self.roofline
        wanted = Conditions.of(self.shape, self.settings, roofline.chip.name, roofline.precision)
        return find_profile(self.profiles, wanted, self.settings.micro_batch)

    @cached_property
    def communication(self) -> Communication:
        """Links and software."""
        return Communication(self.machine, self.stack)

    @property
    def shard_ranks(self) -> int:
        """Data-parallel ranks that share model states; 1 where nothing is sharded."""
        return self.sharding.ranks if self.sharding.stage else 1

    @property
    def num_replicas(self) -> int:
        """Replicas of each group that shards model states."""
        return self.layout.data_parallel // self.shard_ranks

    def tensor_group(self) -> RankGroup:
        """Return where the ranks lie that share each layer."""
        return place_group(self.machine, self.layout.tensor_parallel, 1)

    def shard_group(self) -> RankGroup:
        """Return where the ranks lie that shard model states together."""
        return place_group(self.machine, self.shard_ranks, self.layout.tensor_parallel)

    def replica_group(self) -> RankGroup:
        """Return where the ranks lie that hold the same shard."""
        stride = self.layout.tensor_parallel * self.shard_ranks
        if self.replicas_outermost:
            stride *= self.layout.pipeline_parallel
        return place_group(self.machine, self.num_replicas, stride)

    @property
    def ranks_per_stage(self) -> int:
        """Ranks from one pipeline rank to the next: those of a stage, or of one replica of it."""
        replicas = 1 if self.replicas_outermost else self.num_replicas
        return self.layout.tensor_parallel * self.shard_ranks * replicas

    def crosses_nodes(self, source: int, target: int) -> bool:
        """Return whether some chip of pipeline rank `source` has its counterpart of `target` on another node.

        Args:
            source: A pipeline rank, from 0.
            target: Another one.
        """
        chips, own = self.machine.chips_per_node, self.ranks_per_stage
        pipeline = own * self.layout.pipeline_parallel
        if abs(target - source) * own >= chips:
            return True
        # Pipelines outside each other begin anywhere on a node, unless they divide by its chips.
        starts = range(0, math.lcm(pipeline, chips), pipeline)
        first, last = min(source, target) * own, max(source, target) * own
        return any(
            (start + first + rank) // chips != (start + last + rank) // chips
            for start in starts
            for rank in range(own)
        )

    def _precision(self) -> Precision:
        if self.job.precision.element_bytes == 4:
            return "fp32"
        return "bf16" if self.machine.chip.peak_flop_per_s.bf16 is not None else "fp16"


def _layout_text(layout: Layout) -> str:
    return f"dp {layout.data_parallel}, tp {layout.tensor_parallel}, pp {layout.pipeline_parallel}"
