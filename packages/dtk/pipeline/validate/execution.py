"""Does the schedule end? Runs all lists at once and reports who waits for whom where they stand still."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from dtk.errors import InputError
from dtk.pipeline.action import COMPUTE_KINDS, Kind
from dtk.pipeline.validate.listing import Listing

__all__ = ["check_execution"]

_MOST_SHOWN = 6  # members of a circle of waits in a message


class _Does(IntEnum):
    WAIT = 0  # until another rank has made the thing
    MAKE = 1
    MEET = 2  # until the other rank stands at the same thing


class _Step(NamedTuple):
    """What an action has to do with another rank. Things are numbered: see `_Steps`."""

    does: _Does
    thing: int
    position: int


@dataclass(frozen=True)
class _Steps:
    """The steps of every rank.

    Thing t < S * M is the output of a forward by stage * M + micro-batch, t - S * M that of a backward. One
    rank makes it and one other rank waits for it.
    """

    listing: Listing
    rows: list[list[_Step]]

    @property
    def num_outputs(self) -> int:
        return self.listing.schedule.num_stages * self.listing.schedule.num_microbatches

    def stages(self, thing: int) -> tuple[int, int]:
        """Return the stage that makes the thing and the one that uses it."""
        stage = thing % self.num_outputs // self.listing.schedule.num_microbatches
        return stage, stage + (1 if thing < self.num_outputs else -1)


def check_execution(listing: Listing, *, transfers: bool, rendezvous: bool) -> None:
    """Run the lists; every action takes its turn when what it waits for has happened.

    Args:
        listing: A schedule whose order on each rank, and whose transfers, have been checked.
        transfers: Whether the schedule lists sends and receives. Otherwise outputs arrive by themselves.
        rendezvous: Whether listed sends and receives hold their rank until the partner has come to the same
            message, one at a time, as blocking calls without buffers do. Otherwise a send never waits.

    Raises:
        InputError: If ranks wait for each other in a circle.
    """
    ranks = range(listing.schedule.num_ranks)
    if transfers:
        rows = [list(_transfer_steps(listing, rank, rendezvous)) for rank in ranks]
    else:
        rows = [list(_compute_steps(listing, rank)) for rank in ranks]
    steps = _Steps(listing, rows)
    reached = _run(steps)
    for rank, row in enumerate(steps.rows):
        if reached[rank] < len(row):
            raise _deadlock(steps, reached, rank, transfers and rendezvous)


def _compute_steps(listing: Listing, rank: int) -> Iterator[_Step]:
    """Yield what a rank waits for and makes; a pair waits for both inputs before it makes an output."""
    schedule = listing.schedule
    ranks, size = schedule.rank_of_stage, schedule.num_microbatches
    num_outputs, last = len(ranks) * size, len(ranks) - 1
    for position, action in enumerate(schedule.actions[rank]):
        makes: list[_Step] = []
        for stage, kind, microbatch, _ in action.parts:
            if kind not in COMPUTE_KINDS or kind is Kind.WEIGHT_GRAD or microbatch is None:
                continue
            thing = stage * size + microbatch
            if kind is Kind.FORWARD:
                if stage > 0 and ranks[stage - 1] != rank:
                    yield _Step(_Does.WAIT, thing - size, position)
                makes.append(_Step(_Does.MAKE, thing, position))
            else:
                thing += num_outputs
                if stage < last and ranks[stage + 1] != rank:
                    yield _Step(_Does.WAIT, thing + size, position)
                makes.append(_Step(_Does.MAKE, thing, position))
        yield from makes


def _transfer_steps(listing: Listing, rank: int, rendezvous: bool) -> Iterator[_Step]:
    """Yield what a rank sends and receives; what it computes in between waits for nothing else."""
    schedule = listing.schedule
    size = schedule.num_microbatches
    num_outputs = schedule.num_stages * size
    shift = {Kind.SEND_F: 0, Kind.RECV_F: -size, Kind.SEND_B: num_outputs, Kind.RECV_B: num_outputs + size}
    does = {kind: _Does.WAIT if kind in (Kind.RECV_F, Kind.RECV_B) else _Does.MAKE for kind in shift}
    if rendezvous:
        does = dict.fromkeys(shift, _Does.MEET)
    for position, (stage, kind, microbatch, _) in enumerate(schedule.actions[rank]):
        if kind in shift and microbatch is not None:
            yield _Step(does[kind], stage * size + microbatch + shift[kind], position)


def _run(steps: _Steps) -> list[int]:
    """Return how many steps each rank gets done."""
    reached = [0] * len(steps.rows)
    happened: set[int] = set()
    waiting: dict[int, int] = {}  # thing -> the rank that stands and waits for it
    ready = deque(range(len(steps.rows)))
    while ready:
        rank = ready.popleft()
        row, index = steps.rows[rank], reached[rank]
        while index < len(row):
            does, thing, _ = row[index]
            if does is _Does.WAIT and thing not in happened:
                waiting[thing] = rank
                break
            if does is _Does.MEET and thing not in happened:
                if thing not in waiting:
                    waiting[thing] = rank
                    break
                happened.add(thing)
            elif does is _Does.MAKE:
                happened.add(thing)
            if (other := waiting.pop(thing, None)) is not None:
                ready.append(other)
            index += 1
        reached[rank] = index
    return reached


def _deadlock(steps: _Steps, reached: list[int], rank: int, rendezvous: bool) -> InputError:
    """Follow the waits from a rank that stands still until a rank comes up again."""
    order: list[int] = []
    while rank not in order:
        order.append(rank)
        rank = _awaited(steps, reached, rank)[0]
    circle = order[order.index(rank) :]
    lowest = circle.index(min(circle))
    circle = circle[lowest:] + circle[:lowest]
    waits = [_describe(steps, reached, each) for each in circle[:_MOST_SHOWN]]
    if len(circle) > _MOST_SHOWN:
        waits.append(f"and so on, {len(circle)} ranks in a circle")
    first = steps.rows[circle[0]][reached[circle[0]]]
    return InputError(
        f"deadlock: {'; '.join(waits)}",
        field=f"rank {circle[0]}, position {first.position}",
        value=str(steps.listing.schedule.actions[circle[0]][first.position]),
        hint="one of two ranks that send to each other has to receive first" if rendezvous else None,
    )


def _awaited(steps: _Steps, reached: list[int], rank: int) -> tuple[int, str]:
    """Return the rank that the given one waits for, and the action."""
    does, thing, position = steps.rows[rank][reached[rank]]
    schedule = steps.listing.schedule
    maker, user = steps.stages(thing)
    key = thing % steps.num_outputs
    microbatch = key % schedule.num_microbatches
    forward = thing < steps.num_outputs
    if schedule.actions[rank][position].kind in COMPUTE_KINDS:
        kind = Kind.FORWARD if forward else steps.listing.backward_kind(key)
        return schedule.rank_of_stage[maker], f"{maker}{kind}{microbatch}"
    if does is _Does.MEET and schedule.rank_of_stage[maker] == rank:
        return schedule.rank_of_stage[user], f"{user}{Kind.RECV_F if forward else Kind.RECV_B}{microbatch}"
    return schedule.rank_of_stage[maker], f"{maker}{Kind.SEND_F if forward else Kind.SEND_B}{microbatch}"


def _describe(steps: _Steps, reached: list[int], rank: int) -> str:
    position = steps.rows[rank][reached[rank]].position
    other, action = _awaited(steps, reached, rank)
    mine = steps.listing.schedule.actions[rank][position]
    return f"rank {rank} stands at {mine} (position {position}) and waits for {action} of rank {other}"
