"""Where each compute action stands in the lists: every one once, on its stage's rank, in a possible order."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from dtk.errors import InputError
from dtk.pipeline.action import PARAMETER_KINDS, TRANSFER_KINDS, Action, Kind
from dtk.pipeline.schedule import Schedule

__all__ = ["Listing", "check_order", "read_listing", "refusal"]


@dataclass(frozen=True)
class Listing:
    """Positions of compute actions in their ranks' lists, by stage * M + micro-batch.

    Attributes:
        schedule: The schedule that was read.
        forward: Positions of F.
        backward: Positions of B or I.
        weight: Positions of W; a B has none.
        full: The keys whose backward is a B.
    """

    schedule: Schedule
    forward: dict[int, int] = field(default_factory=dict)
    backward: dict[int, int] = field(default_factory=dict)
    weight: dict[int, int] = field(default_factory=dict)
    full: set[int] = field(default_factory=set)

    def place(self, key: int) -> tuple[int, int]:
        """Return stage and micro-batch of a key."""
        return divmod(key, self.schedule.num_microbatches)

    def backward_kind(self, key: int) -> Kind:
        """Return whether a stage and micro-batch has a B or an I."""
        return Kind.FULL_BACKWARD if key in self.full else Kind.INPUT_GRAD


def refusal(
    schedule: Schedule, rank: int, position: int, message: str, *, hint: str | None = None
) -> InputError:
    """Return the error about one listed action."""
    action = schedule.actions[rank][position]
    return InputError(message, field=f"rank {rank}, position {position}", value=str(action), hint=hint)


def read_listing(schedule: Schedule) -> Listing:
    """Find every compute action.

    Raises:
        InputError: If the map from stages to ranks is broken; if an action names no stage or micro-batch of
            the schedule, stands on another rank than its stage or stands there twice; or if one is missing.
    """
    _check_stages(schedule)
    listing = Listing(schedule)
    for rank, row in enumerate(schedule.actions):
        for position, action in enumerate(row):
            if action.sub_actions or action.kind is Kind.OVERLAP_F_B:
                _check_pair(schedule, rank, position, action)
            for part in action.parts:
                _check_part(schedule, rank, position, part)
                if part.kind not in TRANSFER_KINDS and part.kind not in PARAMETER_KINDS:
                    _record(listing, rank, position, part)
    _check_complete(listing)
    return listing


def _check_stages(schedule: Schedule) -> None:
    num_ranks = schedule.num_ranks
    if schedule.num_microbatches < 1:
        raise InputError("must be 1 or more", field="num_microbatches", value=schedule.num_microbatches)
    for stage, rank in enumerate(schedule.rank_of_stage):
        if not 0 <= rank < num_ranks:
            raise InputError(
                f"the schedule lists {num_ranks} ranks and has none of this number",
                field=f"rank of stage {stage}",
                value=rank,
            )
    for rank in range(num_ranks):
        if rank not in schedule.rank_of_stage:
            raise InputError("holds no stage", field=f"rank {rank}", hint="every rank holds one or more")
    if not num_ranks:
        raise InputError("lists no rank", field="schedule", value=schedule.name)


def _check_pair(schedule: Schedule, rank: int, position: int, action: Action) -> None:
    kinds = [part.kind for part in action.sub_actions]
    fine = ([Kind.FORWARD, Kind.FULL_BACKWARD], [Kind.FORWARD, Kind.INPUT_GRAD])
    if action.kind is not Kind.OVERLAP_F_B or kinds not in fine:
        raise refusal(schedule, rank, position, "an overlapped pair holds a forward and then a backward")


def _check_part(schedule: Schedule, rank: int, position: int, part: Action) -> None:
    stage, kind, microbatch, _ = part
    if not 0 <= stage < schedule.num_stages:
        message = f"there is no stage {stage}: stages are 0 to {schedule.num_stages - 1}"
    elif (holder := schedule.rank_of_stage[stage]) != rank:
        message = f"stands on rank {rank}, but rank {holder} holds stage {stage}"
    elif (microbatch is None) != (kind in PARAMETER_KINDS):
        message = f"{kind} {'needs a' if microbatch is None else 'has no'} micro-batch"
    elif microbatch is not None and not 0 <= microbatch < schedule.num_microbatches:
        last = schedule.num_microbatches - 1
        message = f"there is no micro-batch {microbatch}: micro-batches are 0 to {last}"
    else:
        return
    raise refusal(schedule, rank, position, message)


def _record(listing: Listing, rank: int, position: int, part: Action) -> None:
    stage, kind, microbatch, _ = part
    key = stage * listing.schedule.num_microbatches + (microbatch or 0)
    if kind is Kind.FORWARD:
        places = listing.forward
    elif kind is Kind.WEIGHT_GRAD:
        places = listing.weight
    else:
        places = listing.backward
    if key in places:
        earlier = listing.schedule.actions[rank][places[key]]
        message = f"repeats {earlier}, which stands at position {places[key]} already"
        raise refusal(listing.schedule, rank, position, message)
    places[key] = position
    if kind is Kind.FULL_BACKWARD:
        listing.full.add(key)


def _check_complete(listing: Listing) -> None:
    schedule = listing.schedule
    for key in range(schedule.num_stages * schedule.num_microbatches):
        stage, microbatch = listing.place(key)
        if key not in listing.forward:
            missing = f"{stage}F{microbatch}"
        elif key not in listing.backward:
            missing = f"{stage}B{microbatch} (or {stage}I{microbatch} and {stage}W{microbatch})"
        elif key in listing.weight or key in listing.full:
            continue
        else:
            missing = f"{stage}W{microbatch}"
        hint = _why_expected(listing, microbatch)
        raise InputError(f"{missing} is missing", field=f"rank {schedule.rank_of_stage[stage]}", hint=hint)


def _why_expected(listing: Listing, microbatch: int) -> str | None:
    """Name the action that sets M, if no stage has a forward of this micro-batch: it may be the wrong one."""
    schedule = listing.schedule
    last = schedule.num_microbatches - 1
    if any(stage * (last + 1) + microbatch in listing.forward for stage in range(schedule.num_stages)):
        return None
    for rank, row in enumerate(schedule.actions):
        for position, action in enumerate(row):
            if any(part.microbatch == last for part in action.parts):
                return f"{action} on rank {rank}, position {position}, makes it {last + 1} micro-batches"
    return None


def check_order(listing: Listing) -> None:
    """Check what each action needs from its own rank: forward, input gradient, weight gradient in turn.

    Raises:
        InputError: If an action stands before (or in a pair with) one that it waits for, or a weight gradient
            follows a full backward.
    """
    for rank, key, position, needed in _needs_of_own_rank(listing):
        places = listing.forward if needed is Kind.FORWARD else listing.backward
        if places[key] < position:
            continue
        stage, microbatch = listing.place(key)
        where = f"which comes later, at position {places[key]}"
        if places[key] == position:
            where = "which runs in the same pair"
        message = f"waits for {stage}{needed}{microbatch}, {where}"
        raise refusal(listing.schedule, rank, position, message)
    for key in sorted(listing.full & listing.weight.keys()):
        stage, microbatch = listing.place(key)
        rank = listing.schedule.rank_of_stage[stage]
        message = f"the weight gradient is part of {stage}B{microbatch} at position {listing.backward[key]}"
        raise refusal(listing.schedule, rank, listing.weight[key], message)


def _needs_of_own_rank(listing: Listing) -> Iterator[tuple[int, int, int, Kind]]:
    """Yield rank, key of what is needed, position of what needs it, and the kind that is needed."""
    schedule = listing.schedule
    ranks, size = schedule.rank_of_stage, schedule.num_microbatches
    for key, position in listing.backward.items():
        stage = key // size
        yield ranks[stage], key, position, Kind.FORWARD
        if stage + 1 < len(ranks) and ranks[stage + 1] == ranks[stage]:
            yield ranks[stage], key + size, position, listing.backward_kind(key + size)
    for key, position in listing.weight.items():
        yield ranks[key // size], key, position, listing.backward_kind(key)
    for key, position in listing.forward.items():
        stage = key // size
        if stage > 0 and ranks[stage - 1] == ranks[stage]:
            yield ranks[stage], key - size, position, Kind.FORWARD
