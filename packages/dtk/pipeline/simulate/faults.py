"""What both engines refuse, in the same words."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from numbers import Integral
from typing import Final

from dtk.errors import InputError
from dtk.pipeline.action import COMPUTE_KINDS, PARAMETER_KINDS, Action, Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import MAX_ACTIONS, Schedule

__all__ = [
    "check_actions",
    "check_placement",
    "check_shape",
    "check_sizes",
    "listed_twice",
    "misplaced",
    "stuck",
]

_BACKWARDS: Final = frozenset({Kind.FULL_BACKWARD, Kind.INPUT_GRAD})
# What one action can add to a time or to what is held: two parts, each with two times and a transfer.
_COSTS_OF_AN_ACTION: Final = 6


def check_sizes(schedule: Schedule, costs: StageCosts) -> None:
    """Check what can be seen without looking at the actions.

    Raises:
        InputError: If the costs are those of another number of stages, a stage is on no rank, or the schedule
            is larger or its costs are higher than any that can be simulated.
    """
    if costs.num_stages != schedule.num_stages:
        wrong = f"are those of {costs.num_stages} stages, and the schedule has {schedule.num_stages}"
        raise InputError(wrong, field="costs")
    check_placement(schedule)
    if schedule.num_microbatches < 0:
        raise InputError("must be 0 or more", field="num_microbatches", value=schedule.num_microbatches)
    if schedule.num_stages * schedule.num_microbatches > MAX_ACTIONS:
        wrong = f"with {schedule.num_stages} stages there can be at most {MAX_ACTIONS} forwards"
        raise InputError(wrong, field="num_microbatches", value=schedule.num_microbatches)
    num_actions = sum(map(len, schedule.actions))
    largest = max((max(getattr(costs, each.name), default=0) for each in fields(costs)), default=0)
    if largest * (_COSTS_OF_AN_ACTION * num_actions + schedule.num_stages) >= 2**63:
        wrong = f"sums over {num_actions} actions of this time or size may not fit into 64 bits"
        raise InputError(wrong, field="costs", value=largest)


def check_placement(schedule: Schedule) -> None:
    """Check that each stage is on a rank.

    Raises:
        InputError: If one is not.
    """
    for stage, rank in enumerate(schedule.rank_of_stage):
        if not 0 <= rank < schedule.num_ranks:
            wrong = f"stage {stage} must be on a rank from 0 to {schedule.num_ranks - 1}"
            raise InputError(wrong, field="rank_of_stage", value=rank)


def check_shape(rank: int, action: Action) -> None:
    """Check that an action is one: a kind and whole numbers, or a pair of a forward and a backward.

    Raises:
        InputError: If it is not.
    """
    if action.kind is Kind.OVERLAP_F_B or action.sub_actions:
        kinds = [part.kind for part in action.sub_actions]
        backwards = any(kinds == [Kind.FORWARD, kind] for kind in _BACKWARDS)
        nested = any(part.sub_actions for part in action.sub_actions)
        if action.kind is not Kind.OVERLAP_F_B or not backwards or nested:
            wrong = "a pair holds a forward and then a backward, and nothing else holds actions"
            raise InputError(f"rank {rank} lists {action}, but {wrong}", field="schedule")
    for part in action.parts:
        values: dict[str, tuple[object, type]] = {
            "kind": (part.kind, Kind),
            "stage": (part.stage, Integral),
            "micro-batch": (part.microbatch or 0, Integral),
        }
        for name, (value, wanted) in values.items():
            if not isinstance(value, wanted):
                wrong = "must be a Kind" if wanted is Kind else "must be a whole number"
                raise InputError(wrong, field=f"{name} of {part} on rank {rank}", value=value)


def misplaced(schedule: Schedule, rank: int, part: Action) -> InputError:
    """Return the error for an action whose stage or micro-batch does not exist, or lies on another rank."""
    if not 0 <= part.stage < schedule.num_stages:
        wrong = f"there are stages 0 to {schedule.num_stages - 1}"
    elif schedule.rank_of_stage[part.stage] != rank:
        wrong = f"stage {part.stage} is on rank {schedule.rank_of_stage[part.stage]}"
    elif part.kind in PARAMETER_KINDS:
        wrong = f"{part.kind} has no micro-batch"
    else:
        wrong = f"there are micro-batches 0 to {schedule.num_microbatches - 1}"
    return InputError(f"rank {rank} lists {part}, but {wrong}", field="schedule")


def listed_twice(rank: int, part: Action) -> InputError:
    """Return the error for a forward, a backward or a weight gradient that was listed before."""
    what = ", a second backward of that micro-batch" if part.kind in _BACKWARDS else " a second time"
    return InputError(f"rank {rank} lists {part}{what}", field="schedule")


def check_actions(schedule: Schedule) -> None:
    """Check the actions one by one; `list_actions` does so on whole arrays.

    Raises:
        InputError: As `check_shape`, `misplaced` and `listed_twice` have it.
    """
    for rank, row in enumerate(schedule.actions):
        for action in row:
            check_shape(rank, action)
    parts = [(rank, part) for rank, row in enumerate(schedule.actions) for each in row for part in each.parts]
    for rank, part in parts:
        stage_is_here = 0 <= part.stage < schedule.num_stages and schedule.rank_of_stage[part.stage] == rank
        microbatch = -1 if part.microbatch is None else part.microbatch
        is_without = part.kind in PARAMETER_KINDS
        if not stage_is_here or not (
            microbatch == -1 if is_without else 0 <= microbatch < schedule.num_microbatches
        ):
            raise misplaced(schedule, rank, part)
    seen = set()
    for rank, part in parts:
        kind = Kind.FULL_BACKWARD if part.kind in _BACKWARDS else part.kind
        if (key := part._replace(kind=kind)) in seen:
            raise listed_twice(rank, part)
        if part.kind in COMPUTE_KINDS:
            seen.add(key)


def stuck(schedule: Schedule, blocked: Mapping[int, int]) -> InputError:
    """Return the error for a schedule that cannot run.

    It tells of one rank, preferably of one that waits for what is not in the schedule at all.

    Args:
        schedule: The schedule.
        blocked: For each rank that waits for ever, the place in its list where it does.
    """
    rank_of = {part: rank for rank, row in enumerate(schedule.actions) for each in row for part in each.parts}
    ended = {
        part
        for rank, row in enumerate(schedule.actions)
        for each in row[: blocked.get(rank)]
        for part in each.parts
    }
    lines = []
    for rank, place in sorted(blocked.items()):
        action = schedule.actions[rank][place]
        needs = (need for part in action.parts for need in _needs(part, schedule.num_stages))
        alternatives = next(each for each in needs if not ended.intersection(each))
        needed = next((each for each in alternatives if each in rank_of), alternatives[0])
        where = f"which rank {rank_of[needed]} never gets to" if needed in rank_of else "which no rank lists"
        line = f"rank {rank} waits for ever before {action} for {needed}, {where}"
        lines.append((needed in rank_of, rank, line))
    return InputError(min(lines)[2], field="schedule")


def _needs(part: Action, num_stages: int) -> Iterator[tuple[Action, ...]]:
    """Yield what a part waits for, each as the actions that would do."""
    stage, kind, microbatch, _ = part
    if kind is Kind.FORWARD and stage > 0:
        yield (Action(stage - 1, kind, microbatch),)
    if kind in _BACKWARDS:
        yield (Action(stage, Kind.FORWARD, microbatch),)
        if stage < num_stages - 1:
            others = [kind, *(_BACKWARDS - {kind})]
            yield tuple(Action(stage + 1, each, microbatch) for each in others)
    if kind is Kind.WEIGHT_GRAD:
        yield (Action(stage, Kind.INPUT_GRAD, microbatch),)
