"""What stock torch holds when it runs a plan's compute schedule: it gathers and reduces by rules of its own.

Rules of `torch.distributed.pipelining.schedules` (`_add_unshard_reshard`, `_add_reduce_grad`): before each
action the next stages that compute, up to a limit, are gathered and all others freed; a stage's gradients are
reduced after its last micro-batch. All stages of a rank then hold unreduced gradients together, where a plan
of ZeroPP reduces them once a unit. Basis: simulated, like the plan.
"""

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.iteration.memory import memory_limit_bytes, states_bytes
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate
from dtk.zeropp.planning.evaluation import Evaluated

__all__ = [
    "TORCH_ACTIVE_STAGES",
    "StockMemory",
    "compute_schedule",
    "gib",
    "lowered_as_torch",
    "stock_data",
    "stock_memory",
]

TORCH_ACTIVE_STAGES: Final = 3
"""torch's `max_active_stages` where nobody sets it: stages of a rank that are gathered at once."""

_WITH_GRADIENTS: Final = frozenset({Kind.FULL_BACKWARD, Kind.WEIGHT_GRAD})


@dataclass(frozen=True, slots=True)
class StockMemory:
    """What the fullest rank holds under stock torch; basis: simulated.

    Attributes:
        plan_bytes: In the plan itself.
        active_stages: The limit of gathered stages that the plan asks for.
        least_bytes: Under stock torch with that limit.
        default_bytes: Under stock torch with its own limit, which torchtitan 0.2 has no key for.
        limit_bytes: What a rank may hold of its chip's memory.
    """

    plan_bytes: int
    active_stages: int
    least_bytes: int
    default_bytes: int
    limit_bytes: int

    @property
    def fits(self) -> bool:
        """Whether both recipes stay within the chip's memory."""
        return max(self.least_bytes, self.default_bytes) <= self.limit_bytes


def stock_memory(evaluated: Evaluated) -> StockMemory:
    """Return what the fullest rank holds when stock torch runs a plan that shards everything."""
    limit = evaluated.candidate.schedule.resident_chunks
    return StockMemory(
        plan_bytes=evaluated.estimate.peak_bytes,
        active_stages=limit,
        least_bytes=_held_bytes(evaluated, limit),
        default_bytes=_held_bytes(evaluated, TORCH_ACTIVE_STAGES),
        limit_bytes=memory_limit_bytes(evaluated.estimate.run),
    )


def stock_data(evaluated: Evaluated) -> dict[str, Any]:
    """Return the same as plain values for JSON."""
    stock = stock_memory(evaluated)
    return asdict(stock) | {
        "default_active_stages": TORCH_ACTIVE_STAGES,
        "fits": stock.fits,
        "basis": "simulated",
    }


def gib(size_bytes: int) -> str:
    """Return a size as people read it."""
    return f"{size_bytes / 2**30:.1f} GiB"


def _held_bytes(evaluated: Evaluated, active_stages: int) -> int:
    estimate = evaluated.estimate
    # FSDP2 keeps whole optimizer shards on every replica.
    run = replace(estimate.run, sharding=replace(estimate.run.sharding, optimizer_replicas=1))
    splits = evaluated.candidate.splits_backward
    costs = estimate.costs.as_torch_splits() if splits else estimate.costs
    peaks = simulate(lowered_as_torch(compute_schedule(evaluated), active_stages), costs).peak_bytes
    return max(
        replace(
            memory,
            states_bytes=sum(states_bytes(run, estimate.stages[stage]) for stage in own),
            schedule_bytes=peak,
        ).total_bytes
        for memory, own, peak in zip(estimate.memory, estimate.schedule.stages_of_rank, peaks, strict=True)
    )


def compute_schedule(evaluated: Evaluated) -> Schedule:
    """Return the compute actions for torch's runtime.

    Where weight gradients are not kept back, the two halves of a backward are one action: torch's own split
    computes again what is recomputed, once for each half.
    """
    schedule = evaluated.estimate.schedule.compute_only()
    if evaluated.candidate.splits_backward:
        return schedule
    return schedule.with_actions([_joined(row) for row in schedule.actions])


def _joined(row: tuple[Action, ...]) -> list[Action]:
    joined: list[Action] = []
    for action in row:
        before = joined[-1] if joined else None
        halves = before is not None and (before.stage, before.microbatch) == (action.stage, action.microbatch)
        if halves and before and before.kind is Kind.INPUT_GRAD and action.kind is Kind.WEIGHT_GRAD:
            joined[-1] = before._replace(kind=Kind.FULL_BACKWARD)
        else:
            joined.append(action)
    return joined


def lowered_as_torch(schedule: Schedule, active_stages: int = TORCH_ACTIVE_STAGES) -> Schedule:
    """Return a compute schedule, without overlapped pairs, with the gathers and reductions torch adds."""
    return schedule.with_actions(
        [_lowered(row, active_stages, schedule.num_microbatches) for row in schedule.actions]
    )


def _lowered(row: tuple[Action, ...], active_stages: int, num_microbatches: int) -> list[Action]:
    lowered: list[Action] = []
    active: set[int] = set()
    done: Counter[int] = Counter()
    for action, upcoming in zip(row, _upcoming(row, active_stages), strict=True):
        lowered += [Action(stage, Kind.RESHARD) for stage in sorted(active - set(upcoming))]
        lowered += [Action(stage, Kind.UNSHARD) for stage in upcoming if stage not in active]
        active = set(upcoming)
        lowered.append(action)
        done[action.stage] += action.kind in _WITH_GRADIENTS
        if action.kind in _WITH_GRADIENTS and done[action.stage] == num_microbatches:
            lowered.append(Action(action.stage, Kind.REDUCE_GRAD))
    return lowered + [Action(stage, Kind.RESHARD) for stage in sorted(active)]


def _upcoming(row: tuple[Action, ...], count: int) -> list[list[int]]:
    """Return for each action the first `count` stages from it on, each once, in the order of their turn."""
    order: list[int] = []
    upcoming: list[list[int]] = []
    for action in reversed(row):
        order = [action.stage, *(stage for stage in order if stage != action.stage)]
        upcoming.append(order[:count])
    return upcoming[::-1]
