"""What the cost model says of published runs, beside what was measured."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from dtk.costmodel.constants import (
    DEFAULT_STACK,
    ChipConstants,
    StackConstants,
    chip_constants,
    stack_constants,
)
from dtk.costmodel.machine import Machine, machine_of
from dtk.costmodel.measurements import MeasuredMemory, MeasuredRun
from dtk.costmodel.profiles import ModelProfile
from dtk.errors import InputError
from dtk.hardware.catalogue import packaged_catalogue
from dtk.pipeline.iteration.estimate import Estimate, estimate
from dtk.pipeline.iteration.run import FSDP, ScheduleChoice, TrainingRun

__all__ = ["Comparison", "compare", "described", "fastest_described", "software_of"]

_MICRO_BATCHES: Final = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Comparison:
    """A published run and what the model says of it.

    Attributes:
        measured: The run; basis: published.
        estimated: The same run as the model sees it; basis: simulated.
    """

    measured: MeasuredRun
    estimated: Estimate

    @property
    def error(self) -> float:
        """Relative error of the iteration's time: above 0 where the model is too slow."""
        return self.estimated.iteration_s / self.measured.measured_s - 1


def compare(
    runs: Iterable[MeasuredRun],
    *,
    stack: StackConstants | None = None,
    constants: ChipConstants | None = None,
    profiles: tuple[ModelProfile, ...] = (),
) -> tuple[Comparison, ...]:
    """Return what the model says of published runs, in their order.

    A run whose micro-batch was not printed is taken with the one that the model finds fastest in its memory.

    Args:
        runs: The runs.
        stack: Software; by default that which ran them, see `software_of`.
        constants: What the chips reach; the packaged constants without it.
        profiles: Measured times of layers; if there are any, each run must have been profiled.
    """
    return tuple(Comparison(each, _estimate(each, stack, constants, profiles)) for each in runs)


def _estimate(
    measured: MeasuredRun,
    stack: StackConstants | None,
    constants: ChipConstants | None,
    profiles: tuple[ModelProfile, ...],
) -> Estimate:
    if "micro_batch" in measured.source.assumed:
        return fastest_described(measured, stack=stack, constants=constants)
    return estimate(replace(described(measured, stack=stack, constants=constants), profiles=profiles))


def described(
    measured: MeasuredRun | MeasuredMemory,
    *,
    stack: StackConstants | None = None,
    constants: ChipConstants | None = None,
) -> TrainingRun:
    """Return a published run as the cost model sees it.

    A single stage whose weights are sharded is gathered layer by layer, as FSDP and ZeRO-3 do.

    Raises:
        InputError: If it ran on unlike nodes.
    """
    if measured.placement:
        hint = "the cost model of a run is that of like nodes"
        raise InputError("ran on unlike nodes", field="run", value=measured.name, hint=hint)
    layout, schedule = measured.layout, measured.schedule
    if measured.sharding.stage == 3 and layout.num_stages == 1:
        layout, schedule = layout.model_copy(update={"chunks": measured.shape.num_layers}), FSDP
    return TrainingRun(
        measured.shape,
        measured.job,
        layout,
        _machine(measured.node, measured.num_chips, constants),
        stack or stack_constants(software_of(measured)),
        measured.sharding,
        # Of a sharded model, the chunk at work is gathered, and the next one.
        ScheduleChoice(schedule, resident_chunks=2, reduce="microbatch")
        if schedule == FSDP
        else ScheduleChoice(schedule),
        measured.precision,
        layers_per_stage=measured.layers_per_stage or None,
    )


def software_of(measured: MeasuredRun | MeasuredMemory) -> str:
    """Return the name of the software constants that stand for what ran a published run."""
    if measured.source.name != "torchtitan":
        return DEFAULT_STACK
    return "torch-fsdp2" if "compile" in measured.options else "torch-fsdp2-eager"


def fastest_described(
    measured: MeasuredRun, *, stack: StackConstants | None = None, constants: ChipConstants | None = None
) -> Estimate:
    """Return a published run with the micro-batch that the model finds fastest within memory.

    Raises:
        InputError: If none fits.
    """
    run = described(measured, stack=stack, constants=constants)
    found = []
    for micro_batch in _MICRO_BATCHES:
        if run.job.global_batch % (micro_batch * run.layout.data_parallel) == 0:
            job = run.job.model_copy(update={"micro_batch": micro_batch})
            found.append(estimate(replace(run, job=job)))
    fitting = [each for each in found if each.fits]
    if not fitting:
        raise InputError("no micro-batch fits the memory", field="run", value=measured.name)
    return min(fitting, key=lambda each: each.iteration_s)


def _machine(node: str, num_chips: int, constants: ChipConstants | None) -> Machine:
    """Return as many chips of whole nodes, or of a part of one."""
    chips_per_node = packaged_catalogue().node(node).num_chips
    machine = machine_of(f"{node}x{-(-num_chips // chips_per_node)}")
    if num_chips < chips_per_node:
        machine = replace(machine, chips_per_node=num_chips)
    return replace(machine, constants=constants or chip_constants(machine.chip.name))
