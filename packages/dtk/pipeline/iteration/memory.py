"""What each rank of a run holds at its peak: model states, what the schedule makes it hold, the rest."""

from dataclasses import dataclass

from dtk.costmodel.constants import general_constants
from dtk.costmodel.machine import Machine
from dtk.pipeline.iteration.run import TrainingRun
from dtk.pipeline.iteration.stages import StageTime, kept_parameters
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.result import Simulation
from dtk.workload.activations import rank_activation_bytes
from dtk.workload.states import state_bytes

__all__ = [
    "RankMemory",
    "memory_limit_bytes",
    "rank_memories",
    "reserve_bytes",
    "states_bytes",
    "usable_bytes",
    "working_bytes",
]


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Bytes of a pipeline rank, the same on each of its data- and tensor-parallel ranks.

    Attributes:
        states_bytes: Weights, gradients and optimizer states that it keeps.
        schedule_bytes: The peak of what the schedule makes it hold: activations, inputs of weight gradients,
            gathered weights and gradients not yet reduced.
        working_bytes: What a running pass holds: a layer's restored activations, the logits.
        reserve_bytes: Context, buffers and workspaces.
    """

    states_bytes: int
    schedule_bytes: int
    working_bytes: int
    reserve_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.states_bytes + self.schedule_bytes + self.working_bytes + self.reserve_bytes


def memory_limit_bytes(run: TrainingRun) -> int:
    """Return what a rank may hold."""
    return usable_bytes(run.machine)


def usable_bytes(machine: Machine) -> int:
    """Return what a rank may hold of its chip's memory."""
    return int(machine.chip.memory_bytes * general_constants().usable_memory_share)


def reserve_bytes() -> int:
    """Return what context, communication buffers and library workspaces of a rank hold."""
    return general_constants().reserve_bytes


def rank_memories(
    run: TrainingRun, stages: tuple[StageTime, ...], schedule: Schedule, simulation: Simulation
) -> tuple[RankMemory, ...]:
    """Return the memory of each pipeline rank."""
    return tuple(
        RankMemory(
            sum(states_bytes(run, stages[stage]) for stage in own),
            simulation.peak_bytes[rank],
            working_bytes(run, last=len(stages) - 1 in own),
            reserve_bytes(),
        )
        for rank, own in enumerate(schedule.stages_of_rank)
    )


def states_bytes(run: TrainingRun, stage: StageTime) -> int:
    """Return the bytes of weights, gradients and optimizer that a rank keeps of a stage."""
    return state_bytes(kept_parameters(run, stage), run.job.precision, run.sharding).total_bytes


def working_bytes(run: TrainingRun, *, last: bool) -> int:
    """Return what a running pass holds; on the rank of the last stage with the logits."""
    layer = rank_activation_bytes(
        run.shape,
        run.settings,
        layers_per_chunk=1,
        chunks_in_flight=0,
        head_in_flight=int(last),
        working_layer=True,
    )
    # The message being received and the one being sent.
    settings = run.settings
    message = settings.element_bytes * settings.micro_batch * settings.sequence_tokens * run.shape.hidden_size
    return layer + (2 * message if run.layout.pipeline_parallel > 1 else 0)
