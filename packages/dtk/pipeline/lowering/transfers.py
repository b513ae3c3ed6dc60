"""Sends and receives between ranks, in an order that cannot block.

Two stages on one rank hand tensors over without a transfer. Every other forward is followed at once by its
SEND_F, every input gradient (or full backward) by its SEND_B; where the receives stand is the question, for
with rendezvous (a send ends only when its receive has been reached, as NCCL without spare buffers and MPI's
synchronous mode have it) two ranks that send to each other first wait forever.

Both orders below come from running the schedule with each transfer as ONE event that enters the lists of both
its ranks at the same moment. Every list is then part of one order of all events, so running the lists in that
order never waits: no deadlock under rendezvous, whatever the schedule.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from dtk.errors import InputError
from dtk.pipeline.action import TRANSFER_KINDS, Action, Kind
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.faults import check_actions, check_placement

__all__ = ["Receive", "Transfer", "add_transfers", "input_of", "output_of"]

Receive = Literal["late", "early"]

_BACKWARD = frozenset({Kind.FULL_BACKWARD, Kind.INPUT_GRAD})


class Transfer(NamedTuple):
    """One message between two ranks, as the sender and the receiver list it."""

    send: Action
    receive: Action


def output_of(part: Action, rank_of_stage: tuple[int, ...]) -> Transfer | None:
    """Return the message that carries a compute action's result to another rank, if there is one."""
    stage, kind, microbatch, _ = part
    if kind is Kind.FORWARD:
        peer, send, receive = stage + 1, Kind.SEND_F, Kind.RECV_F
    elif kind in _BACKWARD:
        peer, send, receive = stage - 1, Kind.SEND_B, Kind.RECV_B
    else:
        return None
    if not 0 <= peer < len(rank_of_stage) or rank_of_stage[peer] == rank_of_stage[stage]:
        return None
    return Transfer(Action(stage, send, microbatch), Action(peer, receive, microbatch))


def input_of(part: Action, rank_of_stage: tuple[int, ...]) -> Transfer | None:
    """Return the message from another rank that a compute action waits for, if there is one."""
    if part.kind is Kind.FORWARD and part.stage > 0:
        return output_of(part._replace(stage=part.stage - 1), rank_of_stage)
    if part.kind in _BACKWARD and part.stage + 1 < len(rank_of_stage):
        return output_of(part._replace(stage=part.stage + 1), rank_of_stage)
    return None


def add_transfers(schedule: Schedule, *, receive: Receive = "late") -> Schedule:
    """Return a schedule with SEND_F, RECV_F, SEND_B and RECV_B actions.

    Args:
        schedule: Compute actions, and UNSHARD, RESHARD and REDUCE_GRAD where they are wanted.
        receive: "late" lists a receive right before the action that uses it, and earlier only where a rank
            would otherwise block: of two ranks that want to send to each other the lower one receives first,
            and in a longer circle the lowest. "early" lists it as soon as the message can have been sent,
            in the order in which torch's pipelining adds its receives.

    Raises:
        InputError: If the schedule lists transfers already, an action is misplaced or doubled, or its compute
            actions wait for each other.
    """
    if receive not in get_args(Receive):
        raise InputError("not a place for receives", field="receive", value=receive, hint="late or early")
    for rank, row in enumerate(schedule.actions):
        for action in row:
            if action.kind in TRANSFER_KINDS:
                raise InputError("transfers are listed already", field=f"rank {rank}", value=str(action))
    check_placement(schedule)
    check_actions(schedule)
    lowering = _Late(schedule) if receive == "late" else _Early(schedule)
    rows = lowering.run()
    for rank, row in enumerate(schedule.actions):
        if lowering.position[rank] < len(row):
            raise InputError(
                "the schedule's actions wait for each other",
                field=f"rank {rank}",
                value=str(row[lowering.position[rank]]),
                hint="dtk.pipeline.validate says which",
            )
    return schedule.with_actions(rows)


class _Lowering:
    """The lists as far as they are written."""

    def __init__(self, schedule: Schedule) -> None:
        self.rows = schedule.actions
        self.rank_of_stage = schedule.rank_of_stage
        self.written: list[list[Action]] = [[] for _ in self.rows]
        self.position = [0] * len(self.rows)  # of the next action of each rank
        self.arrived: set[Action] = set()  # receives that have been listed

    def inputs(self, action: Action) -> Iterator[Transfer]:
        """Return the messages that an action waits for and that have not arrived."""
        for part in action.parts:
            message = input_of(part, self.rank_of_stage)
            if message is not None and message.receive not in self.arrived:
                yield message

    def outputs(self, action: Action) -> list[Transfer]:
        """Return the messages that an action's results travel in."""
        messages = (output_of(part, self.rank_of_stage) for part in action.parts)
        return [message for message in messages if message is not None]

    def deliver(self, message: Transfer) -> int:
        """List a transfer on both its ranks; return the receiving one."""
        receiver = self.rank_of_stage[message.receive.stage]
        self.written[self.rank_of_stage[message.send.stage]].append(message.send)
        self.written[receiver].append(message.receive)
        self.arrived.add(message.receive)
        return receiver


class _Early(_Lowering):
    """Rounds over the ranks, one action each; a result is delivered as soon as it is there."""

    def run(self) -> list[list[Action]]:
        unfinished = [rank for rank, row in enumerate(self.rows) if row]
        while unfinished:
            moved = [rank for rank in unfinished if self._step(rank)]
            if not moved:
                break
            unfinished = [rank for rank in unfinished if self.position[rank] < len(self.rows[rank])]
        return self.written

    def _step(self, rank: int) -> bool:
        action = self.rows[rank][self.position[rank]]
        if next(self.inputs(action), None) is not None:
            return False
        self.written[rank].append(action)
        for message in self.outputs(action):
            self.deliver(message)
        self.position[rank] += 1
        return True


class _Late(_Lowering):
    """Each rank runs until it waits for an input or until nobody asks for what it sends.

    Delivering what the receiver waits for never changes what else can happen, so the state in which every
    rank stands still does not depend on the order of steps, and the lists are unique.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.sending: list[deque[Transfer]] = [deque() for _ in self.rows]  # what each rank stands at
        self.standing: list[tuple[int, int, Transfer]] = []  # heap by receiver and sender; entries go stale

    def run(self) -> list[list[Action]]:
        ready = deque(range(len(self.rows)))
        while True:
            while ready:
                self._advance(ready.popleft(), ready)
            message = self._earliest_standing()
            if message is None:
                return self.written
            self._deliver_and_wake(message, ready)

    def _advance(self, rank: int, ready: deque[int]) -> None:
        row, sending = self.rows[rank], self.sending[rank]
        while not sending and self.position[rank] < len(row):
            action = row[self.position[rank]]
            for message in list(self.inputs(action)):
                if self._is_sent(message):
                    ready.append(self.rank_of_stage[message.send.stage])
                    self._deliver(message)
                else:
                    return
            self.written[rank].append(action)
            self.position[rank] += 1
            sending.extend(self.outputs(action))
        if sending:
            self._stand(rank, sending[0], ready)

    def _stand(self, rank: int, message: Transfer, ready: deque[int]) -> None:
        """Send at once if the receiver waits for it, or if both want to send and it is the lower rank."""
        receiver = self.rank_of_stage[message.receive.stage]
        other = self.sending[receiver][0] if self.sending[receiver] else None
        if other is not None and self.rank_of_stage[other.receive.stage] == rank:
            self._deliver_and_wake(other if rank < receiver else message, ready)
        elif other is None and self._is_awaited(message, receiver):
            self._deliver_and_wake(message, ready)
        else:
            heapq.heappush(self.standing, (receiver, rank, message))

    def _is_sent(self, message: Transfer) -> bool:
        sending = self.sending[self.rank_of_stage[message.send.stage]]
        return bool(sending) and sending[0] == message

    def _is_awaited(self, message: Transfer, receiver: int) -> bool:
        position = self.position[receiver]
        if position == len(self.rows[receiver]):
            return False
        return next(self.inputs(self.rows[receiver][position]), None) == message

    def _earliest_standing(self) -> Transfer | None:
        while self.standing:
            _, _, message = heapq.heappop(self.standing)
            if self._is_sent(message):
                return message
        return None

    def _deliver_and_wake(self, message: Transfer, ready: deque[int]) -> None:
        self._deliver(message)
        ready.append(self.rank_of_stage[message.send.stage])
        ready.append(self.rank_of_stage[message.receive.stage])

    def _deliver(self, message: Transfer) -> None:
        self.sending[self.rank_of_stage[message.send.stage]].popleft()
        self.deliver(message)
