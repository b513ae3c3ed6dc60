"""Plans ZeroPP and its rivals for one problem, each over its own space with the same search."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.problem import ZEROPP, PlanProblem
from dtk.zeropp.planning.refusals import refuse_empty_space
from dtk.zeropp.planning.search import Progress, SearchResult, search
from dtk.zeropp.planning.shortfall import Shortfall, explain_miss
from dtk.zeropp.planning.unit_choice import UnitChoice, choose_unit

__all__ = ["Plan", "plan"]

_OWN_SHARE = 0.6
"""Of the time budget, ZeroPP's part where there are rivals."""

_OVERTIME_S = 0.5
"""For the reasons of a plan, once the search has been ended."""


@dataclass(frozen=True)
class Plan:
    """The best configuration of ZeroPP, and what it is held against.

    Attributes:
        problem: What was planned.
        search: ZeroPP's search; its first plan is the best, the others are the runners-up.
        unit: What other units would do; None where nothing fits.
        shortfall: Why the nearest plan that does not fit does not; None where nothing was too large.
        rivals: The searches of the other methods by name, in order; without those that had no time.
        left_out: The rivals that were not searched, with the reason.
    """

    problem: PlanProblem
    search: SearchResult
    unit: UnitChoice | None
    shortfall: Shortfall | None
    rivals: dict[str, SearchResult]
    left_out: dict[str, str]

    @property
    def best(self) -> Evaluated | None:
        """The shortest iteration that fits."""
        return self.search.best[0] if self.search.best else None

    @property
    def fastest_method(self) -> str | None:
        """The method whose best is the shortest of all, ZeroPP where it is as short; None where none fits."""
        found = {ZEROPP: self.search} | self.rivals
        times = {name: each.best[0].iteration_s for name, each in found.items() if each.best}
        return min(times, key=times.__getitem__, default=None)

    @property
    def is_proven(self) -> bool:
        """Whether every search that was made came to its end."""
        return all(each.is_complete for each in (self.search, *self.rivals.values()))

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended a search."""
        return self.search.interrupted or any(each.interrupted for each in self.rivals.values())


def plan(
    problem: PlanProblem,
    *,
    rivals: Sequence[str] = (),
    runners_up: int = 0,
    time_budget_s: float | None = None,
    progress: Callable[[str, Progress], None] = lambda _name, _progress: None,
) -> Plan:
    """Return the best plan of ZeroPP and of its rivals.

    Args:
        problem: What to plan.
        rivals: Names of `METHODS`.
        runners_up: How many other plans of ZeroPP to keep.
        time_budget_s: For all searches together; without a value they run to their ends.
        progress: Told now and then, with the method that is searched.

    Raises:
        InputError: If no configuration has the given options, or none was profiled.
    """
    evaluator = Evaluator(problem)
    start = time.monotonic()
    own = None if time_budget_s is None else start + time_budget_s * (_OWN_SHARE if rivals else 1)
    found = search(
        evaluator,
        METHODS[ZEROPP].space(problem),
        keep=1 + runners_up,
        deadline=own,
        progress=lambda each: progress(ZEROPP, each),
    )
    if not found.num_candidates and found.not_profiled is not None:
        raise found.not_profiled
    # An empty space is listed to its end at once.
    if not found.num_candidates and found.is_complete:
        refuse_empty_space(problem)
    end = None if time_budget_s is None else start + time_budget_s
    searched, left_out = _search_rivals(evaluator, rivals, found, end, progress)
    if found.interrupted or any(each.interrupted for each in searched.values()):
        end = start
    unit, shortfall = _explain(evaluator, found, end)
    return Plan(problem, found, unit, shortfall, searched, left_out)


def _explain(
    evaluator: Evaluator, found: SearchResult, end: float | None
) -> tuple[UnitChoice | None, Shortfall | None]:
    """Return what other units would do and what nearly fits, little later than the end."""
    deadline = None if end is None else max(end, time.monotonic() + _OVERTIME_S)
    unit = shortfall = None
    try:
        if found.best:
            unit = choose_unit(evaluator, found.best[0], deadline=deadline)
        if found.nearest_misses:
            shortfall = explain_miss(evaluator, found.nearest_misses, deadline=deadline)
    except KeyboardInterrupt:
        found.interrupted = True
    return unit, shortfall


def _search_rivals(
    evaluator: Evaluator,
    names: Sequence[str],
    own: SearchResult,
    end: float | None,
    progress: Callable[[str, Progress], None],
) -> tuple[dict[str, SearchResult], dict[str, str]]:
    found: dict[str, SearchResult] = {}
    left_out: dict[str, str] = {}
    interrupted = own.interrupted
    for place, name in enumerate(names):
        now = time.monotonic()
        if interrupted or (end is not None and now >= end):
            left_out[name] = "interrupted" if interrupted else "no time left"
            continue
        deadline = None if end is None else now + (end - now) / (len(names) - place)
        result = search(
            evaluator,
            METHODS[name].space(evaluator.problem),
            deadline=deadline,
            progress=partial(progress, name),
        )
        if not result.num_candidates and result.not_profiled is not None:
            left_out[name] = "not profiled"
            continue
        found[name] = result
        interrupted = result.interrupted
    return found, left_out
