"""What an iteration's time and a rank's memory are made of, and what sets the limit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dtk.pipeline.iteration.estimate import Estimate
from dtk.pipeline.iteration.stages import exposed_synchronisation_s, kept_parameters, tied_embedding_s
from dtk.pipeline.simulate import simulate_memory
from dtk.pipeline.simulate.result import IdleCause, MemoryKind
from dtk.workload.states import state_bytes

__all__ = ["MEMORY_NAMES", "TIME_NAMES", "MemoryParts", "TimeParts", "memory_parts", "time_parts"]

TIME_NAMES: Final[Mapping[str, str]] = {
    "layers": "layers, forward and backward",
    "recomputation": "computed again",
    "ends": "embedding, head and loss",
    "host": "host, for each micro-batch",
    "tensor_parallel": "tensor-parallel communication",
    "slowed": "compute slowed by collectives beside it",
    "fill": "bubble: before the first micro-batch comes",
    "activation": "bubble: waiting for an activation",
    "gradient": "bubble: waiting for a gradient",
    "transfer": "bubble: messages on their way",
    "drain": "bubble: waiting for the other ranks",
    "unshard": "gathers that nothing hides",
    "reduce": "reductions that nothing hides",
    "synchronisation": "replicas share gradients and weights",
    "tied_embedding": "first and last stage share the embedding's gradients",
    "optimizer": "optimizer step",
}
"""The parts of an iteration's time, in the order in which they are told."""

MEMORY_NAMES: Final[Mapping[str, str]] = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activation": "activations",
    "weight_grad_input": "inputs of weight gradients",
    "parameter": "gathered weights",
    "gradient": "gradients not yet reduced",
    "working": "a running pass",
    "reserve": "reserve",
}
"""The parts of a rank's memory, likewise."""

_NS: Final = 10**9
_NOTHING: Final = 1e-6


@dataclass(frozen=True)
class TimeParts:
    """The iteration's time on the pipeline rank that computes most.

    Attributes:
        rank: The rank.
        seconds: By part (`TIME_NAMES`), in order, without parts that take no time; together the iteration.
    """

    rank: int
    seconds: Mapping[str, float]

    @property
    def largest_loss(self) -> tuple[str, float] | None:
        """The largest part that is not the model's own computing."""
        losses = {name: value for name, value in self.seconds.items() if name not in {"layers", "ends"}}
        return max(losses.items(), key=lambda each: each[1], default=None)


@dataclass(frozen=True)
class MemoryParts:
    """What the fullest pipeline rank holds when it holds most.

    Attributes:
        rank: The rank.
        size_bytes: By part (`MEMORY_NAMES`), in order, without parts of no size; they add up to its peak.
    """

    rank: int
    size_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return sum(self.size_bytes.values())


def time_parts(estimate: Estimate) -> TimeParts:
    """Return what the iteration's time is made of."""
    simulation, run = estimate.simulation, estimate.run
    rank = max(range(len(simulation.compute_ns)), key=simulation.compute_ns.__getitem__)
    stages = [estimate.stages[stage] for stage in estimate.schedule.stages_of_rank[rank]]
    count = run.num_microbatches
    again = count * sum(stage.recomputed_s for stage in stages)
    communicated = count * sum(stage.communication_s for stage in stages)
    if again and run.job.recomputation == "full":
        # A third of the exchanges belong to what is computed again, and are told there.
        communicated *= 4 / 6
    ends = count * sum(part.total_s - part.communication_s for stage in stages for part in stage.ends)
    host = count * sum(stage.host_s for stage in stages)
    synchronisation = sum(exposed_synchronisation_s(run, stage) for stage in stages)
    own = estimate.schedule.stages_of_rank[rank]
    tied = len({0, len(estimate.stages) - 1} & set(own)) * _tied_embedding_s(estimate)
    optimizer = sum(estimate.costs.optimizer_ns[stage] for stage in own) / _NS
    computed = count * sum(stage.forward_s + stage.input_grad_s + stage.weight_grad_s for stage in stages)
    parts = {
        "layers": computed - again - communicated - ends - host,
        "recomputation": again,
        "ends": ends,
        "host": host,
        "tensor_parallel": communicated,
        "slowed": simulation.compute_ns[rank] / _NS - optimizer - computed,
        **{cause.value: simulation.idle_ns[rank].get(cause, 0) / _NS for cause in IdleCause},
        "synchronisation": synchronisation,
        "tied_embedding": tied,
        "optimizer": optimizer - synchronisation - tied,
    }
    # Nanoseconds are rounded stage by stage and micro-batch by micro-batch: so little is nothing.
    least = _NOTHING * estimate.iteration_s
    return TimeParts(rank, {name: parts[name] for name in TIME_NAMES if parts[name] > least})


def _tied_embedding_s(estimate: Estimate) -> float:
    if not estimate.run.shape.tied_embeddings:
        return 0.0
    ranks = estimate.schedule.rank_of_stage
    return tied_embedding_s(estimate.run, ranks[0], ranks[-1])


def memory_parts(estimate: Estimate) -> MemoryParts:
    """Return what the fullest rank's memory is made of."""
    run = estimate.run
    rank = max(range(len(estimate.memory)), key=lambda each: estimate.memory[each].total_bytes)
    memory = estimate.memory[rank]
    states = [
        state_bytes(kept_parameters(run, estimate.stages[stage]), run.job.precision, run.sharding)
        for stage in estimate.schedule.stages_of_rank[rank]
    ]
    scheduled = _at_peak(estimate, rank)
    parts = {
        "weights": sum(each.weights_bytes for each in states),
        "gradients": sum(each.gradients_bytes for each in states),
        "optimizer": sum(each.optimizer_bytes for each in states),
        **{kind.value: scheduled.get(kind, 0) for kind in MemoryKind},
        "working": memory.working_bytes,
        "reserve": memory.reserve_bytes,
    }
    return MemoryParts(rank, {name: parts[name] for name in MEMORY_NAMES if parts[name]})


def _at_peak(estimate: Estimate, rank: int) -> Mapping[MemoryKind, int]:
    """Return what the schedule makes a rank hold at the time when it holds most."""
    held: dict[MemoryKind, int] = {}
    peak: dict[MemoryKind, int] = {}
    now = 0
    for step in simulate_memory(estimate.schedule, estimate.costs):
        if step.rank != rank:
            continue
        # Steps of one time count together: what is freed then is not held with what is taken.
        if step.time_ns > now and sum(held.values()) > sum(peak.values()):
            peak = dict(held)
        now = step.time_ns
        held[step.kind] = step.held_bytes
    return dict(held) if sum(held.values()) > sum(peak.values()) else peak
