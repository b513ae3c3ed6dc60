"""A schedule's actions as arrays, in one pass over the lists."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dtk.pipeline.action import COMPUTE_KINDS, PARAMETER_KINDS, TRANSFER_KINDS, Action, Kind
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.faults import check_actions, check_shape, listed_twice, misplaced

__all__ = ["CODES", "Indices", "Listing", "list_actions"]

Indices = NDArray[np.int64]

CODES: Final = {kind: code for code, kind in enumerate(Kind)}
_COMPUTE_CODES: Final = np.isin(np.arange(len(CODES)), [CODES[kind] for kind in COMPUTE_KINDS])
_TRANSFER_CODES: Final = np.isin(np.arange(len(CODES)), [CODES[kind] for kind in TRANSFER_KINDS])
_PARAMETER_CODES: Final = np.isin(np.arange(len(CODES)), [CODES[kind] for kind in PARAMETER_KINDS])
_ONCE: Final = ((Kind.FORWARD,), (Kind.FULL_BACKWARD, Kind.INPUT_GRAD), (Kind.WEIGHT_GRAD,))


@dataclass(frozen=True, eq=False)
class Listing:
    """All parts of actions, rank by rank, in the order of the lists; a pair gives two parts.

    Sends and receives are left out: the simulator makes its own.

    Attributes:
        actions: All actions, rank by rank.
        action_of_part: [Q] its place in `actions`.
        rank: [Q].
        stage: [Q].
        kind: [Q] a code of `CODES`.
        microbatch: [Q], -1 for none.
        task: [Q] for a part of a compute action that action's number among all compute actions; for another
            action the number of the last compute action before it on its rank, -1 for none.
        is_compute: [Q].
        action_of_task: [C] for each compute action its place in `actions`.
        tasks_before_rank: [P + 1] the compute actions of all lower ranks.
    """

    actions: Sequence[Action]
    action_of_part: Indices
    rank: Indices
    stage: Indices
    kind: NDArray[np.int8]
    microbatch: Indices
    task: Indices
    is_compute: NDArray[np.bool_]
    action_of_task: Indices
    tasks_before_rank: Indices

    def parts_of(self, *kinds: Kind) -> Indices:
        """Return the parts of the given kinds, ascending."""
        return np.flatnonzero(np.logical_or.reduce([self.kind == CODES[kind] for kind in kinds]))

    def part(self, index: int) -> Action:
        """Return one part as an action."""
        place = int(self.action_of_part[index])
        is_second = index > 0 and int(self.action_of_part[index - 1]) == place
        return self.actions[place].parts[int(is_second)]


def list_actions(schedule: Schedule) -> Listing:
    """Return the arrays of a schedule.

    Raises:
        InputError: If an action is none, a stage or a micro-batch does not exist or is on another rank, or
            something is listed twice.
    """
    try:
        return _list_actions(schedule)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
        check_actions(schedule)  # says what is no action, or has a number beyond 64 bits
        raise


def _list_actions(schedule: Schedule) -> Listing:
    actions = list(chain.from_iterable(schedule.actions))
    lengths = [len(row) for row in schedule.actions]
    rank = np.repeat(np.arange(schedule.num_ranks), lengths)
    count = len(actions)
    for place in _unusual(actions):
        check_shape(int(rank[place]), actions[place])
    microbatches = map(itemgetter(2), actions)
    columns: dict[str, NDArray[Any]] = {
        "action_of_part": np.arange(count),
        "rank": rank,
        "stage": np.fromiter(map(itemgetter(0), actions), np.int64, count),
        "kind": np.fromiter(map(CODES.__getitem__, map(itemgetter(1), actions)), np.int8, count),
        "microbatch": np.fromiter((-1 if each is None else each for each in microbatches), np.int64, count),
    }
    if CODES[Kind.OVERLAP_F_B] in columns["kind"]:
        columns = _unfold_pairs(columns, actions)
    _check_places(schedule, columns, actions)
    kept = ~_TRANSFER_CODES[columns["kind"]]
    if not kept.all():
        columns = {name: column[kept] for name, column in columns.items()}
    listing = Listing(actions, **columns, **_numbered(columns, schedule.num_ranks))
    _check_doubles(schedule, listing)
    return listing


def _unusual(actions: Sequence[Action]) -> list[int]:
    """Return the places of pairs, and of what numpy may turn into a number although it is none."""
    usual: tuple[set[type], ...] = ({int}, {Kind}, {int, type(None)}, {tuple})
    columns = [map(itemgetter(place), actions) for place in range(3)]
    # Whole columns at once: there is hardly ever anything to find.
    if not any(map(itemgetter(3), actions)) and all(
        set(map(type, column)) <= types for column, types in zip(columns, usual, strict=False)
    ):
        return []
    return [
        place
        for place, action in enumerate(actions)
        if action[3] or any(type(one) not in types for one, types in zip(action, usual, strict=True))
    ]


def _unfold_pairs(columns: dict[str, NDArray[Any]], actions: Sequence[Action]) -> dict[str, NDArray[Any]]:
    """Give each part of a pair an entry of its own."""
    is_pair = columns["kind"] == CODES[Kind.OVERLAP_F_B]
    pairs = np.flatnonzero(is_pair)
    unfolded = {name: np.repeat(column, 1 + is_pair) for name, column in columns.items()}
    for second in (0, 1):
        parts = [actions[place].sub_actions[second] for place in pairs.tolist()]
        places = pairs + np.arange(len(pairs)) + second
        unfolded["stage"][places] = [part.stage for part in parts]
        unfolded["kind"][places] = [CODES[part.kind] for part in parts]
        unfolded["microbatch"][places] = [part.microbatch for part in parts]
    return unfolded


def _numbered(columns: dict[str, NDArray[Any]], num_ranks: int) -> dict[str, NDArray[Any]]:
    """Number the compute actions."""
    action, rank, is_compute = columns["action_of_part"], columns["rank"], _COMPUTE_CODES[columns["kind"]]
    is_first = np.diff(action, prepend=-1) > 0
    starts_task = is_compute & is_first
    task = np.cumsum(starts_task) - 1
    action_of_task = action[starts_task]
    counts = np.bincount(rank[starts_task], minlength=num_ranks)
    tasks_before_rank = np.concatenate([[0], np.cumsum(counts)])
    return {
        "task": np.where(is_compute | (task >= tasks_before_rank[rank]), task, -1),
        "is_compute": is_compute,
        "action_of_task": action_of_task,
        "tasks_before_rank": tasks_before_rank,
    }


def _check_places(schedule: Schedule, columns: dict[str, NDArray[Any]], actions: Sequence[Action]) -> None:
    stage, microbatch = columns["stage"], columns["microbatch"]
    stage_exists = (stage >= 0) & (stage < schedule.num_stages)
    owner = np.array([*schedule.rank_of_stage, -1])[np.where(stage_exists, stage, -1)]
    microbatch_fits = np.where(
        _PARAMETER_CODES[columns["kind"]],
        microbatch == -1,
        (microbatch >= 0) & (microbatch < schedule.num_microbatches),
    )
    wrong = (owner != columns["rank"]) | ~microbatch_fits
    if wrong.any():
        first = int(np.argmax(wrong))
        place = int(columns["action_of_part"][first])
        is_second = first > 0 and int(columns["action_of_part"][first - 1]) == place
        raise misplaced(schedule, int(columns["rank"][first]), actions[place].parts[int(is_second)])


def _check_doubles(schedule: Schedule, listing: Listing) -> None:
    doubles = [double for kinds in _ONCE for double in _doubles(schedule, listing, kinds)]
    if doubles:
        raise listed_twice(int(listing.rank[min(doubles)]), listing.part(min(doubles)))


def _doubles(schedule: Schedule, listing: Listing, kinds: tuple[Kind, ...]) -> list[int]:
    """Return the parts of these kinds whose stage and micro-batch have come before."""
    parts = listing.parts_of(*kinds)
    cell = listing.stage[parts] * schedule.num_microbatches + listing.microbatch[parts]
    if not len(parts) or np.bincount(cell).max() == 1:
        return []
    _, first = np.unique(cell, return_index=True)
    doubles: list[int] = np.delete(parts, first).tolist()
    return doubles
