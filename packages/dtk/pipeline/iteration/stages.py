"""What each pipeline stage of a run costs: the times and bytes that the schedule's simulation needs."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from dtk.costmodel.layer import PartTime
from dtk.errors import InputError
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.iteration.parts import measured_update_s, part_times
from dtk.pipeline.iteration.run import TrainingRun
from dtk.pipeline.schedule import loop_placement
from dtk.workload.activations import (
    ActivationSettings,
    rank_activation_bytes,
)
from dtk.workload.parameters import StageParameters, stage_parameters
from dtk.workload.transformer import TransformerShape

__all__ = [
    "StageTime",
    "collectives_ns",
    "exposed_synchronisation_s",
    "kept_parameters",
    "stage_costs",
    "stage_times",
    "tied_embedding_s",
]

_NS: Final = 10**9
_IN_A_V: Final = frozenset({"zb-v", "dualpipe-v"})


@dataclass(frozen=True, slots=True)
class StageTime:
    """A stage's times for one micro-batch, and what it holds.

    Attributes:
        num_layers: Its layers.
        layer: The time of each of them.
        ends: The times of embedding and head, where it has them.
        host_s: What the host takes for the micro-batch besides.
        splits_backward: Whether the schedule runs input and weight gradients apart.
        parameters: What its tensor-parallel ranks hold.
        activation_bytes: Kept from forward to backward, for each micro-batch.
        weight_grad_bytes: Kept from the input gradients to the weight gradients.
        update_s: The optimizer's step without sharding, where it was measured.
    """

    num_layers: int
    layer: PartTime
    ends: tuple[PartTime, ...]
    host_s: float
    splits_backward: bool
    parameters: StageParameters
    activation_bytes: int
    weight_grad_bytes: int
    update_s: float | None = None

    @property
    def forward_s(self) -> float:
        """Forward."""
        return self._sum("forward_s") + self.host_s

    @property
    def input_grad_s(self) -> float:
        """Input gradients, with what is computed again before them; of a backward in one piece their part."""
        if self.splits_backward:
            return self._sum("input_grad_s")
        return self._sum("backward_s") - self.weight_grad_s

    @property
    def weight_grad_s(self) -> float:
        """Weight gradients."""
        return self._sum("weight_grad_s")

    @property
    def communication_s(self) -> float:
        """What tensor parallelism communicates and does not hide, in all passes."""
        return self._sum("communication_s")

    @property
    def recomputed_s(self) -> float:
        """What is computed again."""
        return self._sum("recomputed_s")

    @property
    def host_bound(self) -> bool:
        """Whether the host's launches set the pace of its layers."""
        return self.layer.host_bound

    def _sum(self, name: str) -> float:
        ends = sum(getattr(each, name) for each in self.ends)
        return float(self.num_layers * getattr(self.layer, name) + ends)


def stage_times(run: TrainingRun) -> tuple[StageTime, ...]:
    """Return the times of each stage of a run, from the first to the last."""
    layer, embedding, head = part_times(run)
    parameters = _parameters(run.shape, run.stage_layers, run.layout.tensor_parallel)
    final, stages = len(run.stage_layers) - 1, []
    for stage, num_layers in enumerate(run.stage_layers):
        is_kept = run.keep_last_chunk and stage == final and run.settings.recomputation == "full"
        settings = replace(run.settings, recomputation="none") if is_kept else run.settings
        held = rank_activation_bytes(
            run.shape,
            settings,
            layers_per_chunk=num_layers,
            chunks_in_flight=1,
            embedding_in_flight=int(stage == 0),
        )
        stages.append(
            StageTime(
                num_layers,
                _kept(layer) if is_kept else layer,
                (*((embedding,) if stage == 0 else ()), *((head,) if stage == final else ())),
                run.stack.host_micro_batch_s / run.layout.chunks,
                run.schedule.splits_backward,
                parameters[stage],
                held,
                num_layers * _weight_grad_bytes(run.shape, settings),
                measured_update_s(run, num_layers, first=stage == 0, last=stage == final),
            )
        )
    return tuple(stages)


def stage_costs(
    run: TrainingRun,
    stages: tuple[StageTime, ...] | None = None,
    rank_of_stage: tuple[int, ...] | None = None,
) -> StageCosts:
    """Return the costs of each stage, for the simulation of a schedule.

    Sharded weights are gathered ahead of the first pass over a chunk: while another chunk computes, if two
    are gathered at once, else layer by layer, so that a gather delays the pass by its first layer, and by
    what the others take longer than the compute before them. What the optimizer step waits for, reductions
    of gradients at the end of the iteration included, is in `optimizer_ns`.

    Args:
        run: The run.
        stages: Their times, if known.
        rank_of_stage: The pipeline rank of each stage; by default chunk after chunk over all ranks.

    Raises:
        InputError: If a stage takes longer than a quarter of an hour for a micro-batch, or holds more than a
            terabyte of one kind.
    """
    stages = stage_times(run) if stages is None else stages
    ranks = rank_of_stage or loop_placement(run.layout.pipeline_parallel, run.layout.chunks)
    transfer_ns = [_ns(_transfer_s(run, source, target)) for source, target in itertools.pairwise(ranks)]
    sharded = run.sharding.stage == 3
    precision = run.job.precision
    held = [_gathered_at_once(run, stage) for stage in stages]
    values: dict[str, int | Sequence[int]] = {
        "forward_ns": [_ns(stage.forward_s) for stage in stages],
        "input_grad_ns": [_ns(stage.input_grad_s) for stage in stages],
        "weight_grad_ns": [_ns(stage.weight_grad_s) for stage in stages],
        "activation_transfer_ns": [*transfer_ns, 0],
        "gradient_transfer_ns": [0, *transfer_ns],
        "unshard_ns": [_ns(_gather_s(run, stage)) for stage in stages] if sharded else 0,
        "reduce_grad_ns": [_ns(_reduce_s(run, stage)) for stage in stages] if sharded else 0,
        "optimizer_ns": [_ns(_optimizer_s(run, stages, index, ranks)) for index in range(len(stages))],
        "activation_bytes": [stage.activation_bytes for stage in stages],
        "weight_grad_bytes": [stage.weight_grad_bytes for stage in stages],
        "parameter_bytes": [precision.weight_bytes * count for count in held] if sharded else 0,
        "gradient_bytes": [precision.gradient_bytes * count for count in held] if sharded else 0,
        "activation_message_bytes": _message_bytes(run) if len(stages) > 1 else 0,
    }
    try:
        return StageCosts.of(len(stages), **values)
    except InputError as error:
        message = f"makes {error.field} of a stage too large to count: {error.message}"
        hint = "smaller micro-batches, or more ranks to the model"
        value = run.settings.micro_batch
        raise InputError(message, field="micro_batch", value=value, hint=hint) from error


def kept_parameters(run: TrainingRun, stage: StageTime) -> int:
    """Return the parameters of a stage whose states its ranks keep.

    Where the first and the last stage lie on one rank, it keeps a tied embedding once.
    """
    parameters = stage.parameters
    if run.layout.pipeline_parallel > 1 and run.schedule.name not in _IN_A_V:
        return parameters.per_rank
    return sum(part.per_rank for part in parameters.parts if not part.repeats_embedding)


def _kept(layer: PartTime) -> PartTime:
    """Return a layer's time without recomputation."""
    again_s = layer.recomputed_s
    return replace(
        layer,
        input_grad_s=layer.input_grad_s - again_s,
        backward_s=layer.backward_s - again_s,
        recomputed_s=0.0,
    )


def _message_bytes(run: TrainingRun) -> int:
    """Return the bytes of a rank's message to the next stage: tensor-parallel ranks send a part each."""
    settings = run.settings
    elements = settings.micro_batch * settings.sequence_tokens * run.shape.hidden_size
    return settings.element_bytes * elements // run.layout.tensor_parallel


def _transfer_s(run: TrainingRun, source: int, target: int) -> float:
    """Return the time of a message between pipeline ranks, the same in both directions.

    Under tensor parallelism each rank sends its part, and the receivers gather (arXiv 2104.04473, 4.1).
    """
    if source == target:
        return 0.0
    size_bytes, ranks = _message_bytes(run), run.layout.tensor_parallel
    time_s = _send_s(run, size_bytes, source, target)
    if ranks > 1 and not run.settings.sequence_parallel:
        time_s += run.communication.collective_s("all_gather", size_bytes * ranks, run.tensor_group())
    return time_s


def _send_s(run: TrainingRun, size_bytes: float, source: int, target: int) -> float:
    senders = min(run.ranks_per_stage, run.machine.chips_per_node)
    crosses = run.crosses_nodes(source, target)
    return run.communication.transfer_s(size_bytes, crosses_nodes=crosses, senders_per_node=senders)


def _gather_s(run: TrainingRun, stage: StageTime) -> float:
    """Return how long gathering a stage's weights keeps the first pass over it waiting."""
    whole_s = _gathered_s(run, stage)
    if run.schedule.resident_chunks > 1:
        return whole_s
    layers = max(1, stage.num_layers)
    layer_s = whole_s / layers
    backward_s = stage.input_grad_s + (0.0 if stage.splits_backward else stage.weight_grad_s)
    pass_s = min(stage.forward_s, backward_s)
    return layer_s + max(0.0, whole_s - layer_s - pass_s * (layers - 1) / layers)


def _gathered_at_once(run: TrainingRun, stage: StageTime) -> int:
    """Return how many of a stage's parameters are gathered at once, and have gradients not yet reduced.

    If every pass gathers them layer by layer, that is two layers: one computes, the next is on its way.
    """
    whole = stage.parameters.per_rank
    return whole if run.schedule.gather == "visit" else -(-2 * whole // max(2, stage.num_layers))


def _gathered_s(run: TrainingRun, stage: StageTime) -> float:
    size_bytes = run.job.precision.weight_bytes * stage.parameters.per_rank
    return run.communication.collective_s("all_gather", size_bytes, run.shard_group())


def _reduced_s(run: TrainingRun, stage: StageTime) -> float:
    size_bytes = run.job.precision.gradient_bytes * stage.parameters.per_rank
    return run.communication.collective_s("reduce_scatter", size_bytes, run.shard_group())


def _reduce_s(run: TrainingRun, stage: StageTime) -> float:
    """Return the time of reducing a stage's gradients over its sharding group.

    Between nodes, the gathers of the backward pass use the same NICs and are charged here.
    """
    crosses = run.shard_group().num_nodes > 1
    return _reduced_s(run, stage) + (_gathered_s(run, stage) if crosses else 0.0)


def collectives_ns(run: TrainingRun, stages: tuple[StageTime, ...]) -> tuple[list[int], list[int]]:
    """Return what gathering each stage's weights takes, and what reducing its gradients takes."""
    return (
        [_ns(_gathered_s(run, stage)) for stage in stages],
        [_ns(_reduced_s(run, stage)) for stage in stages],
    )


def _optimizer_s(
    run: TrainingRun, stages: tuple[StageTime, ...], index: int, rank_of_stage: tuple[int, ...]
) -> float:
    """Return the time of a stage's share of all that follows the last backward pass."""
    chunks = run.layout.chunks
    time_s = run.stack.host_iteration_s / chunks + _step_s(run, stages[index])
    time_s += exposed_synchronisation_s(run, stages[index])
    if run.shape.tied_embeddings and index in {0, len(stages) - 1}:
        time_s += tied_embedding_s(run, rank_of_stage[0], rank_of_stage[-1])
    return time_s


def exposed_synchronisation_s(run: TrainingRun, stage: StageTime) -> float:
    """Return what replicas take to share a stage's gradients and weights, as far as nothing hides it.

    Gradients can be reduced behind the stage's last backward pass, and weights be gathered behind its next
    forward. The compute that hides them is slower by `overlap_slowdown`, which counts as not hidden.
    """
    reduced_s, gathered_s = _synchronisation_s(run, stage.parameters.per_rank)
    share = run.stack.overlap_data_parallel
    hidden_s = min(share * reduced_s, stage.input_grad_s + stage.weight_grad_s)
    hidden_s += min(share * gathered_s, stage.forward_s)
    return reduced_s + gathered_s - (1 - min(1.0, run.stack.overlap_slowdown)) * hidden_s


def _step_s(run: TrainingRun, stage: StageTime) -> float:
    """Return the optimizer's time: the rank's share of what was measured, or from what it moves.

    Gradients are read for their norm and for the step and set to zero, states read and written, weights
    written.
    """
    precision, sharding, parameters = run.job.precision, run.sharding, kept_parameters(run, stage)
    if stage.update_s is not None:
        return stage.update_s / sharding.optimizer_shards
    gradients = parameters / sharding.gradient_shards
    states = parameters / sharding.optimizer_shards
    moved = 3 * precision.gradient_bytes * gradients
    moved += (2 * precision.optimizer_bytes + precision.weight_bytes) * states
    return run.roofline.stream_s(moved)


def _synchronisation_s(run: TrainingRun, parameters: int) -> tuple[float, float]:
    """Return the times in which replicas reduce gradients, and gather weights where each steps a part."""
    precision, communicate = run.job.precision, run.communication.collective_s
    if run.sharding.stage == 0:
        return communicate("all_reduce", precision.gradient_bytes * parameters, run.replica_group()), 0.0
    shard, replicas = parameters / run.shard_ranks, run.replica_group()
    if run.sharding.stage == 1:
        group = run.shard_group()
        reduced_s = communicate("reduce_scatter", precision.gradient_bytes * parameters, group)
        reduced_s += communicate("all_reduce", precision.gradient_bytes * shard, replicas)
        return reduced_s, communicate("all_gather", precision.weight_bytes * parameters, group)
    if run.sharding.optimizer_replicas == 1:
        return communicate("all_reduce", precision.gradient_bytes * shard, replicas), 0.0
    reduced_s = communicate("reduce_scatter", precision.gradient_bytes * shard, replicas)
    return reduced_s, communicate("all_gather", precision.weight_bytes * shard, replicas)


def tied_embedding_s(run: TrainingRun, first: int, last: int) -> float:
    """Return the time in which the first and the last stage sum the gradients of a tied embedding."""
    if first == last:
        return 0.0
    ranks = run.layout.tensor_parallel
    rows = run.shape.padded_vocab_size(ranks) // ranks
    shards = run.sharding.gradient_shards
    size_bytes = run.job.precision.gradient_bytes * rows * run.shape.embedding_size / shards
    return _send_s(run, size_bytes, first, last)


def _weight_grad_bytes(shape: TransformerShape, settings: ActivationSettings) -> int:
    """Return what a layer's products keep for their weight gradients: inputs and output gradients."""
    ranks, tokens = settings.tensor_parallel, settings.micro_batch * settings.sequence_tokens
    whole = shape.hidden_size // settings.whole_ranks
    query, kv = shape.query_size // ranks, max(shape.kv_size // ranks, shape.head_dim)
    ffn = shape.ffn_size // ranks
    inputs = whole + query + whole + ffn
    gradients = (query + 2 * kv) + whole + ffn * (2 if shape.gated else 1) + whole
    return settings.element_bytes * tokens * (inputs + gradients)


@lru_cache(maxsize=1024)
def _parameters(
    shape: TransformerShape, layers: tuple[int, ...], tensor_parallel: int
) -> tuple[StageParameters, ...]:
    return tuple(stage_parameters(shape, layers, tensor_parallel=tensor_parallel))


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
