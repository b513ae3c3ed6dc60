"""What a rank sends in an iteration, by kind: counted from the schedule's actions and the sizes of the model.

A ring of n ranks sends (n - 1)/n of a tensor for a gather or a reduce-scatter, and twice that for an
all-reduce. ZeroPP's paper (arXiv 2402.03791) leaves that factor out: 36 B h^2 / U for its gathers and
reductions, 8 B s b h for tensor parallelism, in elements a layer; hence its condition 2 s U b > 9 h.
"""

from collections import Counter
from dataclasses import dataclass

from dtk.pipeline.action import Kind
from dtk.pipeline.iteration.estimate import Estimate
from dtk.pipeline.iteration.run import TrainingRun
from dtk.pipeline.iteration.stages import StageTime
from dtk.pipeline.simulate.result import TrafficKind

__all__ = ["Traffic", "most_traffic", "unit_beats_tensor_parallelism", "unit_condition"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a rank sends in an iteration; basis: analytic.

    Attributes:
        pipeline_bytes: Activations and their gradients, to the ranks before and after.
        tensor_parallel_bytes: Hidden states shared by the ranks of a layer.
        gather_bytes: Sharded weights.
        reduce_bytes: Gradients, to their shards.
        replica_bytes: What replicas share at the end of the iteration.
    """

    pipeline_bytes: int
    tensor_parallel_bytes: int
    gather_bytes: int
    reduce_bytes: int
    replica_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        model = self.tensor_parallel_bytes + self.gather_bytes + self.reduce_bytes + self.replica_bytes
        return self.pipeline_bytes + model


def unit_condition(shape_hidden: int, sequence_tokens: int, unit: int, micro_batch: int) -> tuple[int, int]:
    """Return both sides of ZeroPP's condition, 2 s U b > 9 h, under which it communicates less."""
    return 2 * sequence_tokens * unit * micro_batch, 9 * shape_hidden


def unit_beats_tensor_parallelism(
    shape_hidden: int, sequence_tokens: int, unit: int, micro_batch: int
) -> bool:
    """Return whether units of U communicate less than tensor parallelism, by the paper's condition."""
    units, weights = unit_condition(shape_hidden, sequence_tokens, unit, micro_batch)
    return units > weights


def most_traffic(estimate: Estimate) -> Traffic:
    """Return what the pipeline rank sends that sends most."""
    return max(_traffic_by_rank(estimate), key=lambda each: each.total_bytes)


def _traffic_by_rank(estimate: Estimate) -> list[Traffic]:
    run, schedule = estimate.run, estimate.schedule
    counts = Counter(
        (action.kind, action.stage)
        for row in schedule.actions
        for action in row
        if action.kind in (Kind.UNSHARD, Kind.REDUCE_GRAD)
    )
    found = []
    for rank, own in enumerate(schedule.stages_of_rank):
        sent = estimate.simulation.traffic_bytes[rank]
        held = {stage: estimate.stages[stage].parameters.per_rank for stage in own}
        precision, share = run.job.precision, _share(run.sharding.ranks)
        gathered = sum(counts[Kind.UNSHARD, stage] * held[stage] for stage in own)
        reduced = sum(counts[Kind.REDUCE_GRAD, stage] * held[stage] for stage in own)
        found.append(
            Traffic(
                sent.get(TrafficKind.ACTIVATION, 0) + sent.get(TrafficKind.GRADIENT, 0),
                round(sum(_tensor_parallel_bytes(run, estimate.stages, stage) for stage in own)),
                round(precision.weight_bytes * gathered * share),
                round(precision.gradient_bytes * reduced * share),
                round(_replica_bytes(run, sum(held.values()))),
            )
        )
    return found


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


def _tensor_parallel_bytes(run: TrainingRun, stages: tuple[StageTime, ...], stage: int) -> float:
    settings, ranks = run.settings, run.layout.tensor_parallel
    hidden = settings.micro_batch * settings.sequence_tokens * run.shape.hidden_size
    exchange = 2 * _share(ranks) * settings.element_bytes * hidden
    exchanges = (6 if settings.recomputation == "full" else 4) * stages[stage].num_layers
    # The embedding's output and the head's input gradient.
    exchanges += len(stages[stage].ends)
    return run.num_microbatches * exchanges * exchange


def _replica_bytes(run: TrainingRun, parameters: int) -> float:
    """As the cost model counts it: see `dtk.pipeline.iteration.stages`."""
    precision, sharding = run.job.precision, run.sharding
    weights, gradients = precision.weight_bytes, precision.gradient_bytes
    if sharding.stage == 0:
        return 2 * _share(run.layout.data_parallel) * gradients * parameters
    shard, replicas = parameters / sharding.ranks, _share(run.num_replicas)
    if sharding.stage == 1:
        own = _share(sharding.ranks) * (gradients + weights) * parameters
        return own + 2 * replicas * gradients * shard
    if sharding.optimizer_replicas == 1:
        return 2 * replicas * gradients * shard
    return replicas * (gradients + weights) * shard
