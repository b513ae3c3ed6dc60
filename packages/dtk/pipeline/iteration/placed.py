"""Runs on unlike nodes: each replica of a stage takes the times of the node that it lies on.

A replica of the pipeline is simulated with each stage's own compute, its transfers at the pace of the slower
of both ends. Replicas wait for the slowest before they share gradients, and then for the slowest ring.
It leaves out batches that are cut unequally, and tensor parallelism that differs between replicas.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from dtk.costmodel.constants import StackConstants, stack_constants
from dtk.costmodel.machine import machine_of
from dtk.costmodel.measurements import MeasuredRun, Replica
from dtk.costmodel.profiles import ModelProfile
from dtk.errors import InputError
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.iteration.memory import RankMemory, rank_memories
from dtk.pipeline.iteration.published import software_of
from dtk.pipeline.iteration.run import ScheduleChoice, TrainingRun
from dtk.pipeline.iteration.schedules import make_run_schedule
from dtk.pipeline.iteration.stages import stage_costs, stage_times
from dtk.pipeline.simulate import simulate
from dtk.pipeline.simulate.result import Simulation

__all__ = ["PlacedEstimate", "described_placement", "estimate_placed"]

Placement = tuple[tuple[TrainingRun, ...], ...]
"""For each stage its replicas: the run as if all of it lay on nodes of that kind."""


@dataclass(frozen=True)
class PlacedEstimate:
    """What the cost model says of a run on unlike nodes; basis: simulated.

    Attributes:
        placement: Where each replica of each stage lies.
        costs: Costs by stage, for each replica of the pipeline.
        simulations: When each of them does what.
        memory: What each replica of each stage holds at its peak.
    """

    placement: Placement
    costs: tuple[StageCosts, ...]
    simulations: tuple[Simulation, ...]
    memory: tuple[tuple[RankMemory, ...], ...]

    @property
    def iteration_s(self) -> float:
        """Time of an iteration: that of the slowest replica."""
        return max(simulation.makespan_ns for simulation in self.simulations) / 1e9

    @property
    def peak_bytes(self) -> int:
        """Memory of the rank that holds most."""
        return max(memory.total_bytes for stage in self.memory for memory in stage)


def estimate_placed(placement: Placement) -> PlacedEstimate:
    """Return time and memory of a run on unlike nodes.

    Args:
        placement: For each stage and replica the run as if all of it lay on nodes of that kind.

    Raises:
        InputError: If the runs differ in more than their machines, are not as many as stages and replicas, or
            share model states.
    """
    first = _check(placement)
    schedule = make_run_schedule(first)
    own = [[stage_costs(run, rank_of_stage=schedule.rank_of_stage) for run in row] for row in placement]
    waits_ns = [max(costs.optimizer_ns[stage] for costs in row) for stage, row in enumerate(own)]
    costs = tuple(_joined(pipeline, waits_ns) for pipeline in zip(*own, strict=True))
    simulations = tuple(simulate(schedule, each) for each in costs)
    memory = tuple(
        tuple(
            rank_memories(run, stage_times(run), schedule, simulations[replica])[stage]
            for replica, run in enumerate(row)
        )
        for stage, row in enumerate(placement)
    )
    return PlacedEstimate(placement, costs, simulations, memory)


def described_placement(
    measured: MeasuredRun,
    *,
    profiles: Iterable[ModelProfile] = (),
    stack: StackConstants | None = None,
) -> Placement:
    """Return a published run on unlike nodes as the cost model sees it.

    Each replica of a stage has a node to itself, of which it uses as many chips as it has tensor-parallel
    ranks.

    Raises:
        InputError: If the replicas' tensor parallelism differs.
    """
    ranks = measured.layout.tensor_parallel
    if any(replica.tensor_parallel != ranks for row in measured.placement for replica in row):
        raise InputError("has replicas of unlike tensor parallelism", field="run", value=measured.name)
    runs: dict[Replica, TrainingRun] = {}
    for replica in {replica for row in measured.placement for replica in row}:
        machine = machine_of(f"{replica.node}x{measured.num_chips // ranks}")
        runs[replica] = TrainingRun(
            measured.shape,
            measured.job,
            measured.layout,
            replace(machine, chips_per_node=ranks),
            stack or stack_constants(software_of(measured)),
            measured.sharding,
            ScheduleChoice(measured.schedule),
            measured.precision,
            layers_per_stage=measured.layers_per_stage or None,
            profiles=tuple(profiles),
        )
    return tuple(tuple(runs[replica] for replica in row) for row in measured.placement)


def _check(placement: Placement) -> TrainingRun:
    first = placement[0][0] if placement and placement[0] else None
    if first is None:
        raise InputError("names no stage", field="placement")
    sizes = (first.layout.num_stages, first.layout.data_parallel)
    if (len(placement), *{len(row) for row in placement}) != sizes:
        hint = f"{sizes[0]} stages of {sizes[1]} replicas"
        raise InputError("must name each replica of each stage", field="placement", hint=hint)
    if any(replace(run, machine=first.machine) != first for row in placement for run in row):
        raise InputError("holds runs that differ in more than their machines", field="placement")
    if first.sharding.stage == 3 or first.layout.chunks > 1:
        message = "needs whole weights and a chunk a rank"
        raise InputError(message, field="placement", value=first.sharding.stage)
    return first


def _joined(own: Sequence[StageCosts], waits_ns: Sequence[int]) -> StageCosts:
    """Return each stage's own costs, with transfers that wait for the slower end."""
    values = {
        each.name: [getattr(costs, each.name)[i] for i, costs in enumerate(own)]
        for each in fields(StageCosts)
    }
    for stage, (sender, receiver) in enumerate(pairwise(own)):
        values["activation_transfer_ns"][stage] = max(
            sender.activation_transfer_ns[stage], receiver.activation_transfer_ns[stage]
        )
        values["gradient_transfer_ns"][stage + 1] = max(
            sender.gradient_transfer_ns[stage + 1], receiver.gradient_transfer_ns[stage + 1]
        )
    return StageCosts(**{name: tuple(each) for name, each in (values | {"optimizer_ns": waits_ns}).items()})
