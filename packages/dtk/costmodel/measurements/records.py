"""What a published measurement is: the model, the job and the layout that ran, and what was printed of it.

Figures keep the precision of print. Where a publication prints a rate instead of a time, the time follows
from the rate's own way of counting, and says so.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dtk.hardware import Precision
from dtk.workload import Layout, TrainingJob, TransformerShape
from dtk.workload.flops import megatron_hardware_flops, megatron_model_flops
from dtk.workload.states import Sharding

__all__ = [
    "FlopCounting",
    "LayerPart",
    "LayerProfile",
    "MeasuredMemory",
    "MeasuredRun",
    "PublishedSet",
    "Replica",
    "StageTimes",
]

FlopCounting = Literal["hardware", "model"]
"""Whether published FLOP/s count what is computed again (four passes, or three)."""

LayerPart = Literal["embedding", "layer", "head"]
"""The parts of a model that are profiled by themselves; all its layers are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSet:
    """A published table.

    Attributes:
        name: How dtk calls it.
        title: The document.
        url: Its public address.
        licence: Under which terms the figures are here.
        state: `confirmed` was read in the public source; `recollected` was not, and may be wrong.
        basis: `published` as measured, or `analytic` where the publication's own formula gives the figures.
        recollected: Columns of a confirmed table that are recollected.
        assumed: Settings that the source does not print, and that are a reading of ours.
        note: What a reader must know.
    """

    name: str
    title: str
    url: str
    licence: str
    state: Literal["confirmed", "recollected"]
    basis: Literal["published", "analytic"] = "published"
    recollected: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Replica:
    """Where one data-parallel replica of a pipeline stage ran.

    Attributes:
        node: Name of the node type in dtk's hardware catalogue.
        tensor_parallel: Ranks that shared its layers.
    """

    node: str
    tensor_parallel: int


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """What ran, and where.

    Attributes:
        source: The table that it stands in.
        name: One name in its table, made of the sizes.
        shape: The model.
        job: Batch, sequence, precision recipe, recomputation.
        layout: Ranks of each kind of parallelism; together they are the chips.
        sharding: How model states were spread.
        schedule: The pipeline's schedule by name; `1f1b` where there is no pipeline.
        precision: What the matrix products computed in.
        node: Name of the node type in dtk's hardware catalogue; the first of several in `placement`.
        cluster: Name of the cluster in dtk's hardware catalogue, of which the run may have had a part.
        options: What else was switched on, in the source's words: `compile`, `async-tp`.
        layers_per_stage: Transformer layers of each stage, in order; empty for equal stages.
        placement: The replicas of each stage, in order; empty where all are alike.
    """

    source: PublishedSet
    name: str
    shape: TransformerShape
    job: TrainingJob
    layout: Layout
    sharding: Sharding
    schedule: str
    precision: Precision
    node: str
    cluster: str | None = None
    options: tuple[str, ...] = ()
    layers_per_stage: tuple[int, ...] = ()
    placement: tuple[tuple[Replica, ...], ...] = ()

    @property
    def num_chips(self) -> int:
        """Chips that ran it."""
        return self.layout.num_ranks

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of each pipeline in an iteration, M."""
        return self.job.num_microbatches(self.layout.data_parallel)


@dataclass(frozen=True, kw_only=True)
class MeasuredRun(_Setting):
    """A run whose speed was measured.

    Attributes:
        iteration_s: Printed seconds of an iteration.
        chip_flop_per_s: Printed FLOP/s of each chip.
        flop_counting: What `chip_flop_per_s` counts.
        chip_tokens_per_s: Printed tokens per second of each chip.
        peak_memory_bytes: Printed peak of memory, of the fullest chip.
    """

    iteration_s: float | None = None
    chip_flop_per_s: float | None = None
    flop_counting: FlopCounting | None = None
    chip_tokens_per_s: float | None = None
    peak_memory_bytes: int | None = None

    @cached_property
    def counted_flops(self) -> float:
        """FLOPs of an iteration over all chips, by the published formula that `chip_flop_per_s` follows."""
        count = megatron_hardware_flops if self.flop_counting == "hardware" else megatron_model_flops
        return count(self.shape, batch=self.job.global_batch, sequence_tokens=self.job.sequence_tokens)

    @cached_property
    def measured_s(self) -> float:
        """Seconds of an iteration: as printed, else from tokens per second, else from FLOP/s."""
        if self.iteration_s is not None:
            return self.iteration_s
        if self.chip_tokens_per_s is not None:
            return self.job.global_batch_tokens / self.chip_tokens_per_s / self.num_chips
        if self.chip_flop_per_s is not None:
            return self.counted_flops / self.chip_flop_per_s / self.num_chips
        raise ValueError(f"{self.name} of {self.source.name} has no speed")


@dataclass(frozen=True, kw_only=True)
class MeasuredMemory(_Setting):
    """A run whose memory was published, of the fullest chip.

    Attributes:
        model_states_bytes: Weights, gradients and optimizer states.
        activation_bytes: What the forward pass keeps for the backward pass.
        activation_share: The same, as a share of what is kept without recomputation and sequence parallelism.
        peak_memory_bytes: Measured peak.
        estimated_memory_bytes: What the source's own estimate says.
    """

    model_states_bytes: int | None = None
    activation_bytes: int | None = None
    activation_share: float | None = None
    peak_memory_bytes: int | None = None
    estimated_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """Measured times of one layer on one chip.

    Attributes:
        source: The table that it stands in.
        shape: The model.
        chip: Name of the chip in dtk's hardware catalogue.
        part: The embedding, a layer (all are alike) or the head.
        micro_batch: Sequences, b.
        sequence_tokens: Tokens of each, s.
        tensor_parallel: Ranks that share the layer, their collectives included, t.
        precision: What the matrix products computed in.
        forward_s: Seconds of the forward pass.
        backward_s: Seconds of the backward pass, input and weight gradients.
        update_s: Seconds of the optimizer's step.
    """

    source: PublishedSet
    shape: TransformerShape
    chip: str
    part: LayerPart
    micro_batch: int
    sequence_tokens: int
    tensor_parallel: int
    precision: Precision
    forward_s: float
    backward_s: float
    update_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Measured times of one pipeline stage and micro-batch.

    Attributes:
        source: The table that it stands in.
        model: The model as the source calls it.
        num_ranks: Pipeline ranks, P.
        num_microbatches: Micro-batches of an iteration, M.
        micro_batch: Sequences of a micro-batch, b.
        forward_s: Seconds of the forward pass.
        input_gradient_s: Seconds of the gradients of the inputs.
        weight_gradient_s: Seconds of the gradients of the weights.
        transfer_s: Seconds of a transfer to the next stage.
    """

    source: PublishedSet
    model: str
    num_ranks: int
    num_microbatches: int
    micro_batch: int
    forward_s: float
    input_gradient_s: float
    weight_gradient_s: float
    transfer_s: float
