"""Runs the search (or the exact solver) on a problem, and says what is proved about the answer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from dtk.errors import InputError, RunFailedError
from dtk.pipeline.bounds import makespan_bound
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.optimal import cp_sat
from dtk.pipeline.optimal.orders import Order, order_of, peak_memory, schedule_of
from dtk.pipeline.optimal.problem import SchedulingProblem
from dtk.pipeline.optimal.search import Found, makespan_of, search
from dtk.pipeline.schedule import Schedule, loop_placement, v_placement
from dtk.pipeline.validate import validate

__all__ = ["DEFAULT_EFFORT", "Method", "OptimalSchedule", "optimal_schedule", "optimise"]

Method = Literal["search", "exact"]

# Orders timed, times their tasks: some seconds on one core.
DEFAULT_EFFORT = 300_000_000


@dataclass(frozen=True)
class OptimalSchedule:
    """A schedule, and what is known about it.

    Attributes:
        schedule: Compute actions F, I and W.
        makespan_ns: Its end, without parameters' traffic and optimizer.
        lower_bound_ns: What no schedule of this placement within this memory can beat.
        method: What found it.
        evaluations: How many orders the search timed.
        interrupted: Whether Ctrl-C ended the search early.
    """

    schedule: Schedule
    makespan_ns: int
    lower_bound_ns: int
    method: Method
    evaluations: int
    interrupted: bool

    @property
    def proven(self) -> bool:
        """Whether nothing can be better."""
        return self.makespan_ns == self.lower_bound_ns

    @property
    def gap(self) -> float:
        """How much longer it may take than the best, as a share of the lower bound."""
        return self.makespan_ns / self.lower_bound_ns - 1 if self.lower_bound_ns else 0.0


def optimise(
    problem: SchedulingProblem,
    *,
    method: Method = "search",
    seed: int = 0,
    effort: int = DEFAULT_EFFORT,
    time_limit_s: float = 60.0,
    named: Iterable[Schedule] = (),
) -> OptimalSchedule:
    """Return the best schedule found for one placement.

    Args:
        problem: Stages, costs, memory.
        method: `search` (any size, reproducible) or `exact` (OR-tools' CP-SAT, small sizes).
        seed: Of the search or of the solver.
        effort: The search ends after that many orders times tasks.
        time_limit_s: The exact solver ends after that.
        named: Schedules of the same placement; the answer of the search is not worse than those that fit.

    Raises:
        InputError: If `effort` is below 1, `seed` no 31-bit number or `method` none of these, or a named
            schedule has another placement or number of micro-batches, or cannot run.
        NotTestableError: If `exact` is asked for and OR-tools is not installed.
        RunFailedError: If the compiled module is missing, or the solver found nothing in time.
    """
    if effort < 1:
        raise InputError("must be 1 or more", field="effort", value=effort)
    if not 0 <= seed < 2**31:
        raise InputError("must be from 0 to 2**31 - 1", field="seed", value=seed)
    if method not in get_args(Method):
        raise InputError("must be search or exact", field="method", value=method)
    bound = makespan_bound(
        problem.rank_of_stage, problem.num_microbatches, problem.costs, problem.memory_limit
    )
    if method == "exact":
        return _exact(problem, bound, time_limit_s=time_limit_s, seed=seed)
    found = search(
        problem,
        lower_bound_ns=bound,
        max_evaluations=max(effort // problem.num_tasks, 1),
        seed=seed,
        named=[order_of(one) for one in named if _fits(problem, one)],
    )
    return _result(problem, found.order, found.makespan_ns, bound, "search", found)


def optimal_schedule(
    *,
    num_ranks: int,
    num_chunks: int,
    num_microbatches: int,
    costs: StageCosts,
    memory_chunks: int,
    method: Method = "search",
    seed: int = 0,
    effort: int = DEFAULT_EFFORT,
    beside: Iterable[Schedule] = (),
) -> OptimalSchedule:
    """Return the best schedule over the loop and the V placement, within so many chunk activations a rank.

    It is not worse than any named schedule of these sizes that fits the memory, nor than those of `beside` on
    one of the two placements, such as named ones with other options.

    Raises:
        InputError: If a size is below 1, the costs are of other stages, or nothing fits the memory.
        RunFailedError: If the compiled module is missing.
    """
    placements = [loop_placement(num_ranks, num_chunks)]
    if num_chunks > 1 and num_ranks > 1:
        placements.append(v_placement(num_ranks, num_chunks))
    candidates = [*_named_schedules(num_ranks, num_chunks, num_microbatches), *beside]
    found: list[OptimalSchedule] = []
    for placement in placements:
        problem = SchedulingProblem.in_chunks(
            rank_of_stage=placement, num_microbatches=num_microbatches, costs=costs, chunks=memory_chunks
        )
        named = [one for one in candidates if one.rank_of_stage == placement]
        share = effort // len(placements)
        found.append(optimise(problem, method=method, seed=seed, effort=max(share, 1), named=named))
        if found[-1].interrupted:
            break
    return min(found, key=lambda one: one.makespan_ns)


def _named_schedules(num_ranks: int, num_chunks: int, num_microbatches: int) -> list[Schedule]:
    return [
        make_schedule(name, num_ranks=num_ranks, num_chunks=num_chunks, num_microbatches=num_microbatches)
        for name, generator in SCHEDULES.items()
        if generator.takes(num_chunks)
    ]


def _fits(problem: SchedulingProblem, schedule: Schedule) -> bool:
    if schedule.rank_of_stage != problem.rank_of_stage:
        raise InputError("has another placement of stages", field="named", value=schedule.name)
    if schedule.num_microbatches != problem.num_microbatches:
        wrong = f"has {schedule.num_microbatches} micro-batches instead of {problem.num_microbatches}"
        raise InputError(wrong, field="named", value=schedule.name)
    validate(schedule.compute_only())
    held = peak_memory(problem, order_of(schedule))
    return all(peak <= limit for peak, limit in zip(held, problem.memory_limit, strict=True))


def _exact(problem: SchedulingProblem, bound: int, *, time_limit_s: float, seed: int) -> OptimalSchedule:
    answer = cp_sat.solve(problem, time_limit_s=time_limit_s, seed=seed)
    if answer.order is None:
        raise RunFailedError(
            f"the exact solver found no schedule in {time_limit_s:g} s",
            hint="give it longer, or take the search",
        )
    # Timed again: the solver takes transfers as delays, and they may queue.
    makespan = makespan_of(problem, answer.order)
    if makespan is None:
        raise AssertionError("an order by start times cannot wait in a circle")
    return _result(problem, answer.order, makespan, max(bound, answer.lower_bound_ns), "exact")


def _result(
    problem: SchedulingProblem,
    order: Order,
    makespan_ns: int,
    bound: int,
    method: Method,
    found: Found | None = None,
) -> OptimalSchedule:
    return OptimalSchedule(
        schedule_of(problem, order),
        makespan_ns,
        bound,
        method,
        found.evaluations if found else 0,
        found.interrupted if found else False,
    )
