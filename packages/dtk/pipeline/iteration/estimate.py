"""The time of an iteration and the memory of each rank, by event simulation of the schedule."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dtk.costmodel.constants import chip_constants
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.iteration.memory import RankMemory, memory_limit_bytes, rank_memories
from dtk.pipeline.iteration.overlap import slowed_beside_collectives
from dtk.pipeline.iteration.run import TrainingRun
from dtk.pipeline.iteration.schedules import make_run_schedule
from dtk.pipeline.iteration.stages import StageTime, collectives_ns, stage_costs, stage_times
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate
from dtk.pipeline.simulate.result import Simulation
from dtk.workload.flops import model_flops

__all__ = ["Estimate", "estimate", "estimate_stages"]

_HOST_OF: Final = "A100-SXM-80GB"
"""The chip on whose machines the host's launches were fitted."""


@dataclass(frozen=True)
class Estimate:
    """What the cost model says of a run.

    Attributes:
        run: The run.
        stages: The time of each stage for one micro-batch.
        costs: The same with transfers, gathers and reductions and what these slow, as the simulation takes
            them.
        schedule: What each rank does.
        simulation: When, and what it holds.
        memory: What each pipeline rank holds at its peak.
    """

    run: TrainingRun
    stages: tuple[StageTime, ...]
    costs: StageCosts
    schedule: Schedule
    simulation: Simulation
    memory: tuple[RankMemory, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to think about before the figures are relied on."""
        stack, chip = self.run.stack, self.run.machine.chip.name
        host = stack.origins["host_layer_s"]
        known = chip in chip_constants(_HOST_OF).chips or not (host.borrowed_from or host.origin == "fitted")
        if known or not any(stage.host_bound for stage in self.stages):
            return ()
        launch = f"{stack.host_layer_s * 1e3:.2f} ms"
        text = (
            f"the host sets the pace of layers: a pass takes at least the {launch} of launches that were "
            f"fitted on A100 machines of 2023, and those of {chip} may have faster hosts; measured times of "
            "layers know better"
        )
        return (text,)

    @property
    def basis(self) -> str:
        """What the figures rest on: a simulation, and the times of what it joins."""
        profile = self.run.profile
        if profile is None:
            return "simulated"
        missing = sorted({"embedding", "head"} - profile.parts)
        rest = f", {' and '.join(missing)} from the roofline" if missing else ""
        return f"simulated from {profile.basis} layers ({profile.source}){rest}"

    @property
    def iteration_s(self) -> float:
        """Time of an iteration."""
        return self.simulation.makespan_ns / 1e9

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all ranks together."""
        return self.run.job.global_batch_tokens / self.iteration_s

    @cached_property
    def model_flop_per_s(self) -> float:
        """FLOPs of the model (no recomputation, all pairs of attention) a second and chip."""
        job = self.run.job
        flops = model_flops(self.run.shape, batch=job.global_batch, sequence_tokens=job.sequence_tokens)
        return flops / self.iteration_s / self.run.machine.num_chips

    @property
    def utilisation(self) -> float:
        """MFU: `model_flop_per_s` over the chip's peak."""
        roofline = self.run.roofline
        return self.model_flop_per_s / roofline.chip.peak(roofline.precision)

    @property
    def bubble_ratio(self) -> float:
        """Idle share of all ranks' time."""
        return float(self.simulation.bubble_ratio)

    @property
    def peak_bytes(self) -> int:
        """Memory of the rank that holds most."""
        return max(memory.total_bytes for memory in self.memory)

    @property
    def limit_bytes(self) -> int:
        """What a rank may hold."""
        return memory_limit_bytes(self.run)

    @property
    def fits(self) -> bool:
        """Whether every rank stays within its memory."""
        return self.peak_bytes <= self.limit_bytes


def estimate(run: TrainingRun) -> Estimate:
    """Return time and memory of a run.

    Raises:
        InputError: If the schedule does not exist for the run's sizes.
    """
    # First, since it refuses more stages or micro-batches than can be listed.
    make_run_schedule(run)
    return estimate_stages(run, stage_times(run))


def estimate_stages(
    run: TrainingRun, stages: tuple[StageTime, ...], costs: StageCosts | None = None
) -> Estimate:
    """Return time and memory of a run whose stages' times are known; errors are those of `estimate`."""
    schedule = make_run_schedule(run)
    costs = stage_costs(run, stages, schedule.rank_of_stage) if costs is None else costs
    if run.sharding.stage == 3:
        gather_ns, reduce_ns = collectives_ns(run, stages)
        costs = slowed_beside_collectives(
            costs,
            schedule,
            gather_ns=gather_ns,
            reduce_ns=reduce_ns,
            slowdown=run.stack.overlap_slowdown,
        )
    simulation = simulate(schedule, costs)
    return Estimate(
        run, stages, costs, schedule, simulation, rank_memories(run, stages, schedule, simulation)
    )
