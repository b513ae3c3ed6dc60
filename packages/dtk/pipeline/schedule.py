"""A schedule: what each rank does, in order, and which rank holds each stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dtk.errors import InputError
from dtk.pipeline.action import COMPUTE_KINDS, Action

__all__ = ["MAX_ACTIONS", "Schedule", "loop_placement", "v_placement"]

MAX_ACTIONS = 20_000_000  # about 2 GB of actions; a larger request is a slip of the pen


@dataclass(frozen=True)
class Schedule:
    """Immutable; the generators make it, `validate` proves it.

    Attributes:
        name: `1f1b`, `zeropp`, or whatever made it.
        rank_of_stage: For each stage the rank that holds it.
        actions: For each rank its actions, in order. Compute actions alone, or also those that a lowering
            pass has added (`UNSHARD`, `RESHARD`, `REDUCE_GRAD`, sends and receives).
        num_microbatches: The micro-batches of one iteration, M.
        settings: The generator's own parameters, for reports (`unit`, `group_size`).
    """

    name: str
    rank_of_stage: tuple[int, ...]
    actions: tuple[tuple[Action, ...], ...]
    num_microbatches: int
    settings: dict[str, int | str | bool] = field(default_factory=dict, compare=False)

    @property
    def num_ranks(self) -> int:
        """The pipeline-parallel degree, P."""
        return len(self.actions)

    @property
    def num_stages(self) -> int:
        """The stages of all ranks, S = P * V where every rank has V chunks."""
        return len(self.rank_of_stage)

    @cached_property
    def stages_of_rank(self) -> tuple[tuple[int, ...], ...]:
        """For each rank its stages, ascending."""
        held: list[list[int]] = [[] for _ in self.actions]
        for stage, rank in enumerate(self.rank_of_stage):
            held[rank].append(stage)
        return tuple(map(tuple, held))

    def compute_only(self) -> "Schedule":
        """Return the schedule without what a lowering pass adds."""
        kept = tuple(tuple(action for action in row if action.kind in COMPUTE_KINDS) for row in self.actions)
        return Schedule(self.name, self.rank_of_stage, kept, self.num_microbatches, self.settings)

    def with_actions(self, actions: Sequence[Sequence[Action]]) -> "Schedule":
        """Return the same schedule with other action lists."""
        rows = tuple(map(tuple, actions))
        return Schedule(self.name, self.rank_of_stage, rows, self.num_microbatches, self.settings)


def loop_placement(num_ranks: int, num_chunks: int) -> tuple[int, ...]:
    """Return the rank of each stage where stage c * P + r is chunk c of rank r."""
    _check_sizes(num_ranks, num_chunks)
    return tuple(range(num_ranks)) * num_chunks


def v_placement(num_ranks: int, num_chunks: int = 2) -> tuple[int, ...]:
    """Return the rank of each stage where odd chunks run back over the ranks: for two chunks ZB-V's V."""
    _check_sizes(num_ranks, num_chunks)
    there, back = tuple(range(num_ranks)), tuple(range(num_ranks))[::-1]
    return tuple(rank for chunk in range(num_chunks) for rank in (back if chunk % 2 else there))


def _check_sizes(num_ranks: int, num_chunks: int) -> None:
    for name, value in (("num_ranks", num_ranks), ("num_chunks", num_chunks)):
        if value < 1:
            raise InputError("must be 1 or more", field=name, value=value)
