"""When parameters are gathered and freed, and when gradients are reduced: the FSDP part of a schedule.

Source: ZeroPP (arXiv 2402.03791), whose units gather a chunk once for several micro-batches; the first
author's implementation keeps one chunk resident and drops it when the chunk changes. Here the number of
resident chunks and of gradient buffers is free and eviction is optimal, so that the counts of any schedule
can be set beside each other.

The lists only say what happens in which order: what a gather costs and whether it hides behind compute is the
simulator's answer. Left out: gathers across the optimizer step, because what was gathered before it is stale.
"""

import heapq
from collections import defaultdict
from typing import Literal, get_args

from dtk.errors import InputError
from dtk.pipeline.action import COMPUTE_KINDS, Action, Kind
from dtk.pipeline.lowering.residency import Residency, plan_residencies
from dtk.pipeline.schedule import Schedule

__all__ = ["Reduce", "add_parameters"]

Reduce = Literal["unit", "microbatch", "end"]

_GRADIENT_KINDS = frozenset({Kind.FULL_BACKWARD, Kind.WEIGHT_GRAD})


def add_parameters(
    schedule: Schedule,
    *,
    resident_chunks: int = 1,
    lookahead: int = 0,
    reduce: Reduce = "unit",
    unit: int | None = None,
    gradient_buffers: int | None = None,
    weight_grad_needs_parameters: bool = False,
) -> Schedule:
    """Return a compute schedule with UNSHARD, RESHARD and REDUCE_GRAD actions.

    A stage is gathered before the first of a run of uses and freed right after the last one, so that nothing
    gathered outlives the iteration. Where both are due at one place, REDUCE_GRAD comes first, then RESHARD,
    then UNSHARD: gradients are reduced while their parameters are still there, and memory is freed before it
    is taken.

    Args:
        schedule: Compute actions only.
        resident_chunks: How many stages of a rank are gathered at once (k); what is used again last makes
            room.
        lookahead: How many compute actions ahead of its first use a gather is listed at most. It never makes
            more than `resident_chunks` resident, and before a rank's first action stand only that action's
            own gathers.
        reduce: When a stage's gradients are reduced: after its last weight gradient of each unit, after every
            one, or after the last of the iteration.
        unit: Micro-batches of a unit (U). By default the schedule's own `unit` or `group_size` setting,
            otherwise all of them.
        gradient_buffers: At most so many stages of a rank hold unsharded gradients at once; a further one
            makes the stage reduce whose gradients are added to again last. None for as many as come up.
        weight_grad_needs_parameters: Whether a W needs the gathered parameters. It does in torch's own split
            backward; with stashed inputs and output gradients it does not.

    Raises:
        InputError: If a setting is out of range, the schedule lists other than compute actions, or an
            overlapped pair needs two resident chunks and may have one.
    """
    _check(schedule, resident_chunks, lookahead, reduce, gradient_buffers)
    unit = schedule.num_microbatches if reduce == "end" else _unit(schedule, unit)
    needing = COMPUTE_KINDS if weight_grad_needs_parameters else COMPUTE_KINDS - {Kind.WEIGHT_GRAD}
    rows = []
    for rank, row in enumerate(schedule.actions):
        needed = _touched(row, needing)
        _check_places(rank, row, needed, resident_chunks)
        stays = plan_residencies(needed, resident_chunks)
        starts = _gather_positions(stays, resident_chunks, lookahead)
        ends = frozenset(range(len(row))) if reduce == "microbatch" else _last_of_units(row, unit)
        places = len(schedule.rank_of_stage) if gradient_buffers is None else gradient_buffers
        sums = plan_residencies(_touched(row, _GRADIENT_KINDS), places, released_after=ends)
        rows.append(_written(row, stays, starts, sums))
    return schedule.with_actions(rows)


def _check(
    schedule: Schedule, resident_chunks: int, lookahead: int, reduce: str, gradient_buffers: int | None
) -> None:
    for name, value, least in (
        ("resident_chunks", resident_chunks, 1),
        ("lookahead", lookahead, 0),
        ("gradient_buffers", 1 if gradient_buffers is None else gradient_buffers, 1),
    ):
        if value < least:
            raise InputError(f"must be {least} or more", field=name, value=value)
    if reduce not in get_args(Reduce):
        raise InputError("not a time to reduce", field="reduce", value=reduce, hint="unit, microbatch or end")
    for rank, row in enumerate(schedule.actions):
        for action in row:
            if action.kind not in COMPUTE_KINDS:
                raise InputError(
                    "parameters are added to compute actions alone",
                    field=f"rank {rank}",
                    value=str(action),
                    hint="take schedule.compute_only(); transfers are added afterwards",
                )


def _unit(schedule: Schedule, unit: int | None) -> int:
    if unit is None:
        setting = schedule.settings.get("unit", schedule.settings.get("group_size"))
        unit = setting if isinstance(setting, int) else schedule.num_microbatches
    if unit < 1:
        raise InputError("must be 1 or more", field="unit", value=unit)
    return unit


def _touched(row: tuple[Action, ...], kinds: frozenset[Kind]) -> list[tuple[int, ...]]:
    """Return for each action the distinct stages of its parts of these kinds."""
    return [tuple(dict.fromkeys(part.stage for part in action.parts if part.kind in kinds)) for action in row]


def _check_places(rank: int, row: tuple[Action, ...], needed: list[tuple[int, ...]], places: int) -> None:
    for action, stages in zip(row, needed, strict=True):
        if len(stages) > places:
            raise InputError(
                f"{action} of rank {rank} needs {len(stages)} stages gathered at once",
                field="resident_chunks",
                value=places,
                hint=f"{len(stages)} or more",
            )


def _last_of_units(row: tuple[Action, ...], unit: int) -> frozenset[int]:
    """Return the indices of the last gradient of each stage and unit."""
    last: dict[tuple[int, int], int] = {}
    for index, action in enumerate(row):
        for part in action.parts:
            if part.kind in _GRADIENT_KINDS and part.microbatch is not None:
                last[part.stage, part.microbatch // unit] = index
    return frozenset(last.values())


def _gather_positions(stays: list[Residency], places: int, lookahead: int) -> list[int]:
    """Return for each stay the action before which its gather is listed.

    Gathers keep the order in which they are needed, so at the place of one all earlier stays have begun, and
    only their ends decide: the place is free once fewer than `places` of them still last.
    """
    starts: list[int] = []
    latest: list[int] = []  # the last uses of the `places` earlier stays that end latest, as a heap
    last_of_stage: dict[int, int] = {}
    for stay in stays:
        free = latest[0] + 1 if len(latest) == places else 0
        early = max(
            stay.first - lookahead,
            free,
            last_of_stage.get(stay.stage, -1) + 1,
            starts[-1] if starts else 0,
            1,  # nothing is gathered ahead of time before the first action
        )
        starts.append(min(early, stay.first))
        last_of_stage[stay.stage] = stay.last
        heapq.heappush(latest, stay.last)
        if len(latest) > places:
            heapq.heappop(latest)
    return starts


def _written(
    row: tuple[Action, ...], stays: list[Residency], starts: list[int], sums: list[Residency]
) -> list[Action]:
    before: defaultdict[int, list[Action]] = defaultdict(list)  # index of an action -> what is listed before
    for residency in sums:
        before[residency.last + 1].append(Action(residency.stage, Kind.REDUCE_GRAD))
    for stay in sorted(stays, key=lambda each: each.last):
        before[stay.last + 1].append(Action(stay.stage, Kind.RESHARD))
    for stay, start in zip(stays, starts, strict=True):
        before[start].append(Action(stay.stage, Kind.UNSHARD))
    written: list[Action] = []
    for index, action in enumerate(row):
        written.extend(before.get(index, ()))
        written.append(action)
    written.extend(before.get(len(row), ()))
    return written
