"""From settings to a schedule whose parameters are gathered and whose gradients are reduced."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from dtk.pipeline.action import PARAMETER_KINDS, Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.lowering import add_parameters
from dtk.pipeline.optimal import OptimalSchedule, SchedulingProblem, optimal_schedule
from dtk.pipeline.schedule import Schedule, loop_placement
from dtk.pipeline.simulate import simulate
from dtk.zeropp.config import OPTIMAL, ZeroppConfig

__all__ = [
    "Made",
    "as_configured",
    "check_memory",
    "generate",
    "lower",
    "make",
    "make_optimal",
    "stage_costs",
]


@dataclass(frozen=True)
class Made:
    """A schedule before anything is said about it.

    Attributes:
        schedule: With UNSHARD, RESHARD and REDUCE_GRAD.
        costs: Of its stages.
        resident_chunks: How many stages of a rank are gathered at once; None if its own list decided that.
        search: Of `optimal`, what the search knows.
        memory_chunks: Of `optimal`, how many chunk activations a rank was allowed.
    """

    schedule: Schedule
    costs: StageCosts
    resident_chunks: int | None
    search: OptimalSchedule | None = None
    memory_chunks: int | None = None


def stage_costs(config: ZeroppConfig, num_stages: int) -> StageCosts:
    """Return the costs of the settings.

    Raises:
        InputError: If a list of times has another length.
    """
    return as_configured(config, config.costs(num_stages))


def as_configured(config: ZeroppConfig, costs: StageCosts) -> StageCosts:
    """Return costs as torch's split backward has them, if the settings ask for that."""
    return costs.as_torch_splits() if config.torch_stage_zero else costs


def generate(config: ZeroppConfig, name: str, num_chunks: int, *, strict: bool) -> Schedule:
    """Return a named schedule of the settings' sizes.

    Args:
        config: Sizes and options.
        name: A key of `SCHEDULES`.
        num_chunks: V.
        strict: Refuse options (but the unit) that belong to other schedules; otherwise they are left out.

    Raises:
        InputError: If a size or an option does not fit the schedule.
    """
    options: dict[str, Any] = {
        "unit": config.unit,
        "group_size": config.group_size,
        "weight_order": config.weight_order,
        "split": config.split,
        "reverse_backward": config.reverse_backward,
    }
    heeded = SCHEDULES[name].options
    given = {key: value for key, value in options.items() if key in heeded or (strict and key != "unit")}
    return make_schedule(
        name, num_ranks=config.pp, num_chunks=num_chunks, num_microbatches=config.micro_batches, **given
    )


def lower(config: ZeroppConfig, schedule: Schedule) -> tuple[Schedule, int | None]:
    """Add gathers and reductions where the list has none; also return how many stages are gathered at once.

    Raises:
        InputError: If pairs of actions need more stages gathered at once than the settings allow.
    """
    if any(action.kind in PARAMETER_KINDS for row in schedule.actions for action in row):
        return schedule, None
    compute = schedule.compute_only()
    pairs = any(action.kind is Kind.OVERLAP_F_B for row in compute.actions for action in row)
    resident = config.resident_chunks or (2 if pairs else 1)
    lowered = add_parameters(
        compute, resident_chunks=resident, lookahead=config.lookahead, reduce=config.reduce
    )
    return lowered, resident


def make(config: ZeroppConfig, name: str, *, seed: int, searching: Callable[[], None] = lambda: None) -> Made:
    """Return the named schedule of the settings, `optimal` included.

    Args:
        config: Sizes, options and costs.
        name: One of `SCHEDULE_NAMES`.
        seed: Of the search.
        searching: Called before the search begins.

    Raises:
        InputError: If a size, an option or a list of times does not fit.
        RunFailedError: If the compiled search is missing.
    """
    num_chunks = config.num_chunks_of(name)
    if name == OPTIMAL:
        costs = stage_costs(config, config.pp * num_chunks)
        check_memory(config, num_chunks, costs)
        searching()
        return make_optimal(config, num_chunks, costs, seed=seed)
    schedule = generate(config, name, num_chunks, strict=True)
    costs = stage_costs(config, schedule.num_stages)
    lowered, resident = lower(config, schedule)
    return Made(lowered, costs, resident)


def check_memory(config: ZeroppConfig, num_chunks: int, costs: StageCosts) -> int:
    """Return how many chunk activations a rank of `optimal` may hold: as given, or the most that 1F1B holds.

    Raises:
        InputError: If no schedule meets that, or there would be too many actions.
    """
    memory = config.memory_chunks or config.pp * num_chunks
    SchedulingProblem.in_chunks(
        rank_of_stage=loop_placement(config.pp, num_chunks),
        num_microbatches=config.micro_batches,
        costs=costs,
        chunks=memory,
    )
    return memory


def make_optimal(
    config: ZeroppConfig,
    num_chunks: int,
    costs: StageCosts,
    *,
    seed: int,
    beside: Iterable[Schedule] = (),
) -> Made:
    """Return the best schedule found within the memory.

    The search counts neither gathers nor reductions nor the optimizer step. Where these take time and a named
    schedule that fits the memory is shorter with them, its order is returned; `order_of` in the schedule's
    settings names it.

    Args:
        config: Sizes, memory and effort.
        num_chunks: V.
        costs: Of the stages.
        seed: Of the search.
        beside: Schedules of the same stages that it shall not be worse than where they fit the memory.

    Raises:
        InputError: If no schedule meets the memory limit.
        RunFailedError: If the compiled search is missing.
    """
    beside = list(beside)
    memory = check_memory(config, num_chunks, costs)
    search = optimal_schedule(
        num_ranks=config.pp,
        num_chunks=num_chunks,
        num_microbatches=config.micro_batches,
        costs=costs,
        memory_chunks=memory,
        seed=seed,
        effort=config.effort,
        beside=beside,
    )
    lowered, resident = lower(config, search.schedule)
    found = Made(lowered, costs, resident, search, memory)
    if not any((*costs.unshard_ns, *costs.reduce_grad_ns, *costs.optimizer_ns)):
        return found
    named = [
        make_schedule(name, num_ranks=config.pp, num_chunks=num_chunks, num_microbatches=config.micro_batches)
        for name, generator in SCHEDULES.items()
        if generator.takes(num_chunks)
    ]
    return _shortest_within_memory(config, found, [*beside, *named])


def _shortest_within_memory(config: ZeroppConfig, found: Made, named: Iterable[Schedule]) -> Made:
    """Return what was found, or a named schedule that ends earlier once everything is simulated."""
    best, end_ns = found, simulate(found.schedule, found.costs).makespan_ns
    for schedule in named:
        lowered, resident = lower(config, schedule.compute_only())
        if resident != found.resident_chunks:  # as many gathered at once, or it would take more memory
            continue
        simulation = simulate(lowered, found.costs)
        if max(simulation.peak_activation_chunks) > (found.memory_chunks or 0):
            continue
        if simulation.makespan_ns < end_ns:
            end_ns = simulation.makespan_ns
            settings = {"order_of": lowered.name, **lowered.settings}
            best = replace(found, schedule=replace(lowered, name=OPTIMAL, settings=settings))
    return best
