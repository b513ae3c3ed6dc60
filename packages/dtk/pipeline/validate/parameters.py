"""Residency and reductions: parameters are there when used, gradients are reduced when they are full."""

from dtk.errors import InputError
from dtk.pipeline.action import PARAMETER_KINDS, Action, Kind
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.validate.listing import refusal

__all__ = ["check_parameters"]

_GRADIENT_KINDS = frozenset({Kind.FULL_BACKWARD, Kind.WEIGHT_GRAD})


def check_parameters(
    schedule: Schedule, *, resident_chunks: int | None, weight_grad_needs_parameters: bool
) -> None:
    """Check UNSHARD, RESHARD and REDUCE_GRAD, where the schedule lists any.

    Raises:
        InputError: If a compute action finds its stage not gathered, a stage is gathered twice or freed
            twice, more than `resident_chunks` are gathered, something gathered outlives the iteration, or a
            REDUCE_GRAD is missing or finds nothing to reduce.
    """
    kinds = {action.kind for row in schedule.actions for action in row if action.kind in PARAMETER_KINDS}
    if kinds & {Kind.UNSHARD, Kind.RESHARD}:
        for rank in range(schedule.num_ranks):
            _check_residency(schedule, rank, resident_chunks, weight_grad_needs_parameters)
    if Kind.REDUCE_GRAD in kinds:
        for rank in range(schedule.num_ranks):
            _check_reductions(schedule, rank)


def _check_residency(schedule: Schedule, rank: int, resident_chunks: int | None, weights_need: bool) -> None:
    gathered: dict[int, int] = {}  # stage -> position of its UNSHARD
    freed: dict[int, int] = {}
    for position, action in enumerate(schedule.actions[rank]):
        stage = action.stage
        if action.kind is Kind.UNSHARD:
            if stage in gathered:
                message = f"stage {stage} is gathered already, since position {gathered[stage]}"
                raise refusal(schedule, rank, position, message)
            if len(gathered) == resident_chunks:
                held = ", ".join(map(str, sorted(gathered)))
                message = f"more than {resident_chunks} resident chunks: stages {held} are gathered already"
                raise refusal(schedule, rank, position, message)
            gathered[stage] = position
        elif action.kind is Kind.RESHARD:
            if stage not in gathered:
                raise refusal(schedule, rank, position, f"stage {stage} is not gathered")
            freed[stage] = position
            del gathered[stage]
        elif (needed := _missing(action, gathered, weights_need)) is not None:
            since = f"since {needed}RESHARD at position {freed[needed]}" if needed in freed else "yet"
            message = f"waits for {needed}UNSHARD: the parameters of stage {needed} are not gathered {since}"
            raise refusal(schedule, rank, position, message)
    for stage, position in gathered.items():
        message = f"stage {stage} is never freed: what is gathered is stale after the optimizer step"
        raise refusal(schedule, rank, position, message, hint=f"list {stage}RESHARD after its last use")


def _missing(action: Action, gathered: dict[int, int], weights_need: bool) -> int | None:
    for stage, kind, _, _ in action.parts:
        needs = kind in (Kind.FORWARD, Kind.FULL_BACKWARD, Kind.INPUT_GRAD) or (
            weights_need and kind is Kind.WEIGHT_GRAD
        )
        if needs and stage not in gathered:
            return stage
    return None


def _check_reductions(schedule: Schedule, rank: int) -> None:
    waiting: dict[int, int] = {}  # stage -> position of its latest gradient that is not reduced
    for position, action in enumerate(schedule.actions[rank]):
        if action.kind is Kind.REDUCE_GRAD:
            if waiting.pop(action.stage, None) is None:
                message = f"stage {action.stage} has no gradients that are not reduced already"
                raise refusal(schedule, rank, position, message)
            continue
        for part in action.parts:
            if part.kind in _GRADIENT_KINDS:
                waiting[part.stage] = position
    for stage, position in waiting.items():
        raise InputError(
            f"{stage}REDUCE_GRAD is missing after {schedule.actions[rank][position]} at position {position}",
            field=f"rank {rank}",
        )
