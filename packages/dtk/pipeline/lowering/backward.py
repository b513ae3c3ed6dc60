"""Joining and splitting of backward actions: `1I3 1W3` and `1B3` are the same work.

A full backward costs less where nothing runs between its halves (one pass over the graph, and with
recomputation one recomputation); the split lets the weight gradient wait. Overlapped pairs stay as they are:
what a pair fuses is the runtime's choice. Run these before `add_parameters` and `add_transfers`, which put
other actions between the halves.
"""

from collections.abc import Iterable, Iterator

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.schedule import Schedule

__all__ = ["merge_backward", "split_backward"]


def merge_backward(schedule: Schedule) -> Schedule:
    """Return the schedule with every adjacent I and W of one stage and micro-batch joined to a B."""
    return schedule.with_actions([list(_merged(row)) for row in schedule.actions])


def split_backward(schedule: Schedule) -> Schedule:
    """Return the schedule with every B outside a pair split into an I and the W right after it."""
    return schedule.with_actions([list(_split(row)) for row in schedule.actions])


def _merged(row: Iterable[Action]) -> Iterator[Action]:
    waiting: Action | None = None  # an I that may find its W next
    for action in row:
        if waiting is not None:
            if action == waiting._replace(kind=Kind.WEIGHT_GRAD):
                yield waiting._replace(kind=Kind.FULL_BACKWARD)
                waiting = None
                continue
            yield waiting
        waiting = action if action.kind is Kind.INPUT_GRAD else None
        if waiting is None:
            yield action
    if waiting is not None:
        yield waiting


def _split(row: Iterable[Action]) -> Iterator[Action]:
    for action in row:
        if action.kind is Kind.FULL_BACKWARD:
            yield action._replace(kind=Kind.INPUT_GRAD)
            yield action._replace(kind=Kind.WEIGHT_GRAD)
        else:
            yield action
