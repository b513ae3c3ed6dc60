"""One schedule, simulated and explained: its time, why ranks stand idle, how far it is from the bound."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from dtk.pipeline.action import Kind
from dtk.pipeline.bounds import makespan_bound
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import SCHEDULES
from dtk.pipeline.optimal import OptimalSchedule
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate
from dtk.pipeline.simulate.result import Simulation
from dtk.pipeline.text import schedule_from_text
from dtk.pipeline.validate import validate
from dtk.zeropp.config import OPTIMAL, ZeroppConfig
from dtk.zeropp.formulas import FormulaCheck, check_formulas
from dtk.zeropp.making import Made, lower, make, stage_costs

__all__ = ["ScheduleReport", "lower_bound_ns", "report_file", "report_made", "report_schedule"]

_SEARCH_OPTIONS = ("memory_chunks", "effort")
_ORDER_OPTIONS = ("unit", "group_size", "weight_order", "split", "reverse_backward", *_SEARCH_OPTIONS)
_PARAMETER_OPTIONS = ("resident_chunks", "lookahead", "reduce")


@dataclass(frozen=True)
class ScheduleReport:
    """What is known about a schedule.

    Attributes:
        schedule: With UNSHARD, RESHARD and REDUCE_GRAD.
        costs: Of its stages.
        simulation: How long it takes.
        lower_bound_ns: What no schedule of the same stages on the same ranks can beat, whatever its memory.
        formulas: Closed formulas beside the simulation, where they hold.
        warnings: What to think about.
        search: Of `optimal`, what the search knows.
        memory_chunks: Of `optimal`, how many chunk activations a rank was allowed.
    """

    schedule: Schedule
    costs: StageCosts
    simulation: Simulation
    lower_bound_ns: int
    formulas: tuple[FormulaCheck, ...]
    warnings: tuple[str, ...]
    search: OptimalSchedule | None = None
    memory_chunks: int | None = None

    @property
    def gap(self) -> float:
        """How much longer it takes than the lower bound, as a share of that."""
        return self.simulation.makespan_ns / self.lower_bound_ns - 1 if self.lower_bound_ns else 0.0

    @property
    def gap_within_memory(self) -> float | None:
        """Of `optimal`, by how much the simulated time exceeds the bound within its memory, as a share."""
        if self.search is None:
            return None
        bound = self.search.lower_bound_ns
        return self.simulation.makespan_ns / bound - 1 if bound else 0.0

    @property
    def proven(self) -> bool:
        """Whether no schedule within its memory is shorter, gathers and all the rest counted."""
        return self.search is not None and self.simulation.makespan_ns == self.search.lower_bound_ns

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended its search early."""
        return self.search is not None and self.search.interrupted

    @property
    def planning_note(self) -> str:
        """What the search for it left out of account, and what that led to; empty if nothing."""
        if self.search is None or self.search.makespan_ns == self.simulation.makespan_ns:
            return ""
        note = "planned as if gathers, reductions and the optimizer step took no time"
        if named := self.schedule.settings.get("order_of"):
            note += f"; with these, the order of {named} is shorter and was taken"
        return note

    @cached_property
    def num_chunks(self) -> int:
        """The most stages that a rank has, V."""
        return max(map(len, self.schedule.stages_of_rank))


def report_schedule(
    config: ZeroppConfig, *, seed: int = 0, searching: Callable[[], None] = lambda: None
) -> ScheduleReport:
    """Make the schedule that the settings name, simulate it and explain it.

    Args:
        config: Names the schedule.
        seed: Of the search for `optimal`.
        searching: Called before that search begins.

    Raises:
        InputError: If a size, an option, a list of times or the memory does not fit.
        RunFailedError: If `optimal` is asked for and its compiled search is missing.
    """
    made = make(config, config.schedule, seed=seed, searching=searching)
    used = _SEARCH_OPTIONS if config.schedule == OPTIMAL else SCHEDULES[config.schedule].options
    return report_made(made, _unused(config, config.schedule, used, _ORDER_OPTIONS))


def report_file(config: ZeroppConfig, text: str, name: str) -> ScheduleReport:
    """Read a schedule in torch's notation, prove that it can run, simulate it and explain it.

    Args:
        config: Costs, and how parameters are gathered unless the text lists that itself.
        text: One line a rank.
        name: For reports.

    Raises:
        InputError: If the text holds no schedule, or one that cannot run or does not train on every
            micro-batch once; or if a list of times has another length.
    """
    schedule = schedule_from_text(text, name=name)
    validate(schedule)
    costs = stage_costs(config, schedule.num_stages)
    lowered, resident = lower(config, schedule)
    vain = (*_ORDER_OPTIONS, *(_PARAMETER_OPTIONS if resident is None else ()))
    return report_made(Made(lowered, costs, resident), _unused(config, name, (), vain))


def report_made(made: Made, warnings: tuple[str, ...] = ()) -> ScheduleReport:
    """Simulate a schedule and explain it."""
    schedule, costs = made.schedule, made.costs
    simulation = simulate(schedule, costs)
    return ScheduleReport(
        schedule,
        costs,
        simulation,
        lower_bound_ns(schedule, costs),
        check_formulas(schedule, costs, simulation, resident_chunks=made.resident_chunks),
        (*warnings, *_warnings(schedule, costs)),
        made.search,
        made.memory_chunks,
    )


def lower_bound_ns(schedule: Schedule, costs: StageCosts) -> int:
    """Return what no schedule with these stages on these ranks can beat, the optimizer step included.

    Before any compute, stage 0 is gathered; after all compute, some stage's gradients are reduced, where the
    schedule does so at all. Memory is not limited.
    """
    bound = makespan_bound(schedule.rank_of_stage, schedule.num_microbatches, costs)
    kinds = {action.kind for row in schedule.actions for action in row}
    if Kind.UNSHARD in kinds:
        bound += costs.unshard_ns[0]
    if Kind.REDUCE_GRAD in kinds:
        bound += min(costs.reduce_grad_ns)
    steps = (sum(costs.optimizer_ns[stage] for stage in stages) for stages in schedule.stages_of_rank)
    return bound + max(steps)


def _unused(config: ZeroppConfig, who: str, used: Iterable[str], among: Iterable[str]) -> tuple[str, ...]:
    """Warn of settings that differ from their defaults in vain."""
    given = {name: getattr(config, name) for name in among if name not in used}
    vain = [name for name, value in given.items() if value != ZeroppConfig.model_fields[name].default]
    if not vain:
        return ()
    return (f"{who} does not use {', '.join(f'{name}={given[name]}' for name in vain)}",)


def _warnings(schedule: Schedule, costs: StageCosts) -> tuple[str, ...]:
    return (*_small_unit(schedule), *_slow_transfers(schedule, costs))


def _small_unit(schedule: Schedule) -> tuple[str, ...]:
    ranks, found = schedule.num_ranks, []
    unit = schedule.settings.get("unit")
    if schedule.name == "zeropp" and isinstance(unit, int) and unit < ranks:
        found.append(
            f"a unit of {unit} micro-batches is shorter than the pipeline of {ranks} ranks: every unit idles "
            f"while it goes round; {ranks} or more avoid that, {2 * ranks} idle the least"
        )
    if schedule.num_microbatches < ranks:
        found.append(f"{schedule.num_microbatches} micro-batches do not fill a pipeline of {ranks} ranks")
    return tuple(found)


def _slow_transfers(schedule: Schedule, costs: StageCosts) -> tuple[str, ...]:
    """Warn where a message takes longer than the compute that makes it: links then set the pace."""
    slow = []
    for stage, following in itertools.pairwise(range(schedule.num_stages)):
        if schedule.rank_of_stage[stage] == schedule.rank_of_stage[following]:
            continue
        if costs.activation_transfer_ns[stage] > costs.forward_ns[stage]:
            slow.append(f"stage {stage}'s activation takes longer to send than to compute")
        backward = costs.input_grad_ns[following] + costs.weight_grad_ns[following]
        if costs.gradient_transfer_ns[following] > backward:
            slow.append(f"stage {following}'s gradient takes longer to send than to compute")
    if not slow:
        return ()
    more = f" (and {len(slow) - 1} more such messages)" if len(slow) > 1 else ""
    return (f"{slow[0]}{more}: the links, not the ranks, may set the pace",)
