"""Schedules as orders of task numbers, the form in which the compiled search works, and back.

Task (kind, stage, micro-batch) has the number (kind * S + stage) * M + micro-batch, with kinds F, I, W.
"""

from collections import Counter
from collections.abc import Sequence

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.optimal.problem import SchedulingProblem
from dtk.pipeline.schedule import Schedule

__all__ = ["Order", "order_of", "peak_memory", "schedule_of"]

Order = Sequence[Sequence[int]]

_KINDS = (Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)
_PARTS = {
    Kind.FORWARD: (0,),
    Kind.FULL_BACKWARD: (1, 2),
    Kind.INPUT_GRAD: (1,),
    Kind.WEIGHT_GRAD: (2,),
}


def order_of(schedule: Schedule) -> list[list[int]]:
    """Return the order of a schedule's compute actions, with full backwards and pairs split.

    The k-th action of a kind on a stage becomes that of micro-batch k: micro-batches are alike, so this keeps
    all times and all memory.
    """
    microbatches, stages = schedule.num_microbatches, schedule.num_stages
    order: list[list[int]] = []
    for row in schedule.compute_only().actions:
        seen: Counter[tuple[int, int]] = Counter()
        tasks = []
        for part in (part for action in row for part in action.parts):
            for kind in _PARTS[part.kind]:
                tasks.append((kind * stages + part.stage) * microbatches + seen[kind, part.stage])
                seen[kind, part.stage] += 1
        order.append(tasks)
    return order


def schedule_of(problem: SchedulingProblem, order: Order) -> Schedule:
    """Return the schedule named `optimal` that an order stands for."""
    microbatches, stages = problem.num_microbatches, problem.num_stages

    def action(task: int) -> Action:
        kind, rest = divmod(task, stages * microbatches)
        stage, microbatch = divmod(rest, microbatches)
        return Action(stage, _KINDS[kind], microbatch)

    rows = tuple(tuple(map(action, tasks)) for tasks in order)
    return Schedule("optimal", problem.rank_of_stage, rows, microbatches)


def peak_memory(problem: SchedulingProblem, order: Order) -> tuple[int, ...]:
    """Return the most memory that each rank holds, in the units of the costs' bytes."""
    costs = problem.costs
    at_start = (costs.activation_bytes, (0,) * problem.num_stages, (0,) * problem.num_stages)
    shrinks = [
        later - now for later, now in zip(costs.weight_grad_bytes, costs.activation_bytes, strict=True)
    ]
    at_end = ((0,) * problem.num_stages, shrinks, [-later for later in costs.weight_grad_bytes])
    peaks = []
    for tasks in order:
        held = peak = 0
        for task in tasks:
            kind, rest = divmod(task, problem.num_stages * problem.num_microbatches)
            stage = rest // problem.num_microbatches
            peak = max(peak, held := held + at_start[kind][stage])
            peak = max(peak, held := held + at_end[kind][stage])
        peaks.append(peak)
    return tuple(peaks)
