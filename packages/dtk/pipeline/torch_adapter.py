"""Between our schedules and torch's, and the only file that touches private names of torch's pipelining.

torch marks its action type and its schedule visualizer as private: a test checks that each name used here
exists. Importing this file imports torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from torch.distributed.pipelining import _schedule_visualizer, schedules

from dtk.errors import InputError
from dtk.pipeline.action import Action, Kind
from dtk.pipeline.schedule import Schedule, loop_placement, v_placement

__all__ = ["PRIVATE_NAMES", "TORCH_NAMES", "from_torch", "to_torch", "torch_schedule"]

PRIVATE_NAMES: Final = (
    (schedules, "_Action"),
    (schedules, "_ComputationType"),
    (_schedule_visualizer, "get_schedule_ops"),
)

TORCH_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gpipe": "GPipe",
        "1f1b": "1F1B",
        "interleaved": "Interleaved1F1B",
        "bfs": "LoopedBFS",
        "zb-h1": "InterleavedZeroBubble",
        "zb-v": "ZBVZeroBubble",
        "dualpipe-v": "DualPipeV",
    }
)
"""torch's name of each schedule of ours that it generates too (`bfs` with `reverse_backward`; torch takes
`zb-h1` for two chunks or more only)."""

_V_SHAPED: Final = frozenset({"ZBVZeroBubble", "DualPipeV"})


def torch_schedule(torch_name: str, *, num_ranks: int, num_chunks: int, num_microbatches: int) -> Schedule:
    """Return the schedule that torch generates, without waits and without what its lowering adds.

    Args:
        torch_name: A name that torch's `get_schedule_class` knows.
        num_ranks: P.
        num_chunks: V.
        num_microbatches: M.

    Raises:
        InputError: If torch does not make a schedule of these sizes.
    """
    try:
        rows = _schedule_visualizer.get_schedule_ops(torch_name, num_ranks, num_microbatches, num_chunks)
    except (ValueError, AssertionError) as error:
        raise InputError(
            f"torch makes no such schedule: {error}", field="schedule", value=torch_name
        ) from error
    placement = (v_placement if torch_name in _V_SHAPED else loop_placement)(num_ranks, num_chunks)
    schedule = from_torch(rows, placement, num_microbatches, name=torch_name).compute_only()
    return schedule.with_actions([_count_forwards_from_zero(row) for row in schedule.actions])


def _count_forwards_from_zero(row: Sequence[Action]) -> list[Action]:
    """Undo a slip of torch's 1F1B: it lists the last rank's forwards as 1 to M, and runs them as 0 to M-1."""
    forwards = [action.microbatch or 0 for action in row if action.kind is Kind.FORWARD]
    shift = min(forwards, default=0)
    return [
        action._replace(microbatch=(action.microbatch or 0) - shift)
        if action.kind is Kind.FORWARD
        else action
        for action in row
    ]


def from_torch(
    rows: Iterable[Iterable[schedules._Action | None]],
    rank_of_stage: tuple[int, ...],
    num_microbatches: int,
    *,
    name: str = "torch",
) -> Schedule:
    """Return torch's lists of actions, a list a rank, as a schedule; waits (None) are left out."""
    actions = tuple(tuple(_from_torch(action) for action in row if action is not None) for row in rows)
    return Schedule(name, rank_of_stage, actions, num_microbatches)


def to_torch(schedule: Schedule) -> dict[int, list[schedules._Action | None]]:
    """Return the schedule as torch's `pipeline_order`: for each rank its list of torch's actions."""
    return {rank: list(map(_to_torch, row)) for rank, row in enumerate(schedule.actions)}


def _from_torch(action: schedules._Action) -> Action:
    parts = tuple(map(_from_torch, action.sub_actions or ()))
    return Action(action.stage_index, Kind(action.computation_type.value), action.microbatch_index, parts)


def _to_torch(action: Action) -> schedules._Action:
    kind = schedules._ComputationType(action.kind.value)
    parts = tuple(map(_to_torch, action.sub_actions)) or None
    return schedules._Action(action.stage, kind, action.microbatch, parts)
