"""Sends and receives: one of each for every message between ranks, in the same order on both sides."""

from collections import defaultdict

from dtk.errors import InputError
from dtk.pipeline.action import TRANSFER_KINDS, Action, Kind
from dtk.pipeline.lowering.transfers import Transfer, output_of
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.validate.listing import Listing, refusal

__all__ = ["check_transfers", "lists_transfers"]

_SENDS = frozenset({Kind.SEND_F, Kind.SEND_B})
_FORWARD = frozenset({Kind.SEND_F, Kind.RECV_F})


def lists_transfers(schedule: Schedule) -> bool:
    """Return whether the schedule says where its sends and receives stand."""
    return any(action.kind in TRANSFER_KINDS for row in schedule.actions for action in row)


def check_transfers(listing: Listing) -> None:
    """Check every send and receive.

    Messages from one rank to another are told apart by their order alone, as in NCCL and in gloo without
    tags; activations and gradients share it.

    Raises:
        InputError: If one is missing, doubled or needless, is sent before it is computed or received after
            its use, or if the messages from a rank to another are not received in the order of their sends.
    """
    schedule = listing.schedule
    places = _read(schedule)
    ranks, size = schedule.rank_of_stage, schedule.num_microbatches
    for stage, rank in enumerate(ranks):
        for kind, peer in ((Kind.FORWARD, stage + 1), (Kind.INPUT_GRAD, stage - 1)):
            if not 0 <= peer < len(ranks) or ranks[peer] == rank:
                continue
            done = listing.forward if kind is Kind.FORWARD else listing.backward
            for microbatch in range(size):
                message = output_of(Action(stage, kind, microbatch), ranks)
                assert message is not None
                produced, used = done[stage * size + microbatch], done[peer * size + microbatch]
                _check_message(schedule, places, message, produced, used)
    _check_channels(schedule)


def _read(schedule: Schedule) -> dict[Action, int]:
    """Return the position of every transfer."""
    places: dict[Action, int] = {}
    ranks = schedule.rank_of_stage
    for rank, row in enumerate(schedule.actions):
        for position, action in enumerate(row):
            if action.kind not in TRANSFER_KINDS:
                continue
            peer = _peer(action)
            if not 0 <= peer < len(ranks):
                raise refusal(schedule, rank, position, f"stage {action.stage} has no neighbour on that side")
            if ranks[peer] == rank:
                message = f"stages {action.stage} and {peer} are both on rank {rank}: nothing is transferred"
                raise refusal(schedule, rank, position, message)
            if action in places:
                message = f"stands at position {places[action]} already"
                raise refusal(schedule, rank, position, message)
            places[action] = position
    return places


def _peer(action: Action) -> int:
    """Return the stage at the other end of a transfer."""
    return action.stage + (1 if action.kind in (Kind.SEND_F, Kind.RECV_B) else -1)


def _check_message(
    schedule: Schedule, places: dict[Action, int], message: Transfer, produced: int, used: int
) -> None:
    ranks = schedule.rank_of_stage
    sender, receiver = ranks[message.send.stage], ranks[message.receive.stage]
    for action, rank, partner, peer in (
        (message.send, sender, message.receive, receiver),
        (message.receive, receiver, message.send, sender),
    ):
        if action not in places:
            known = f", though rank {peer} lists {partner}" if partner in places else ""
            raise InputError(f"{action} is missing{known}", field=f"rank {rank}")
    if places[message.send] < produced:
        text = f"sends what {schedule.actions[sender][produced]} computes only at position {produced}"
        raise refusal(schedule, sender, places[message.send], text)
    if places[message.receive] > used:
        text = f"waits for {message.receive}, which comes later, at position {places[message.receive]}"
        raise refusal(schedule, receiver, used, text)


def _check_channels(schedule: Schedule) -> None:
    """Compare, for every pair of ranks, the order of sends with that of receives."""
    ranks = schedule.rank_of_stage
    sent: defaultdict[tuple[int, int], list[Action]] = defaultdict(list)
    received: defaultdict[tuple[int, int], list[tuple[int, Action]]] = defaultdict(list)
    for rank, row in enumerate(schedule.actions):
        for position, action in enumerate(row):
            if action.kind in _SENDS:
                sent[rank, ranks[_peer(action)]].append(action)
            elif action.kind in TRANSFER_KINDS:
                received[ranks[_peer(action)], rank].append((position, action))
    for (source, target), sends in sent.items():
        for send, (position, receive) in zip(sends, received[source, target], strict=True):
            if (
                _peer(send) != receive.stage
                or send.microbatch != receive.microbatch
                or _differ(send, receive)
            ):
                message = f"receives out of order: rank {source} sends {send} at this place of its messages"
                raise refusal(schedule, target, position, message)


def _differ(send: Action, receive: Action) -> bool:
    return (send.kind in _FORWARD) != (receive.kind in _FORWARD)
