"""The choice of U: what each unit costs in time and memory, beside the paper's condition 2 s U b > 9 h."""

import time
from dataclasses import dataclass, replace

from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.spaces import units
from dtk.zeropp.planning.traffic import unit_beats_tensor_parallelism

__all__ = ["UnitChoice", "UnitRow", "choose_unit"]


@dataclass(frozen=True)
class UnitRow:
    """One unit, everything else as in the plan; basis: simulated.

    Attributes:
        unit: U.
        evaluated: Its plan.
        meets_condition: Whether 2 s U b > 9 h.
    """

    unit: int
    evaluated: Evaluated
    meets_condition: bool


@dataclass(frozen=True)
class UnitChoice:
    """All units of a plan.

    Attributes:
        chosen: U of the plan.
        least_by_condition: The smallest unit that communicates less than tensor parallelism, by the paper.
        rows: The units that were tried, ascending; the plan's own is always there.
    """

    chosen: int
    least_by_condition: int
    rows: tuple[UnitRow, ...]


def choose_unit(evaluator: Evaluator, best: Evaluated, *, deadline: float | None = None) -> UnitChoice:
    """Return what other units would do in the place of the plan's.

    Args:
        evaluator: Estimates them.
        best: The plan.
        deadline: When to leave out the units that are left, in seconds of `time.monotonic`.
    """
    problem, candidate = evaluator.problem, best.candidate
    num_microbatches = best.estimate.run.num_microbatches
    chosen = min(candidate.schedule.unit or 2 * candidate.pipeline_parallel, num_microbatches)
    rows = []
    for unit in sorted({chosen, *units(candidate.pipeline_parallel, num_microbatches)}):
        if unit != chosen and deadline is not None and time.monotonic() > deadline:
            continue
        schedule = replace(candidate.schedule, unit=unit)
        evaluated = best if unit == chosen else evaluator.evaluate(replace(candidate, schedule=schedule))
        meets = unit_beats_tensor_parallelism(
            problem.shape.hidden_size, problem.sequence_tokens, unit, candidate.micro_batch
        )
        rows.append(UnitRow(unit, evaluated, meets))
    least = 9 * problem.shape.hidden_size // (2 * problem.sequence_tokens * candidate.micro_batch) + 1
    return UnitChoice(chosen, least, tuple(rows))
