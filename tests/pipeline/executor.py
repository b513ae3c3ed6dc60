"""A small executor that moves named tensors about: the oracle for the validator and the lowering passes.

It knows nothing of positions or dependency graphs. Ranks run in random order; an action runs when what it
consumes lies on its rank, and a schedule is good if all lists empty and every gradient is there at the end.
"""

import random
from collections import defaultdict, deque

from dtk.pipeline.action import TRANSFER_KINDS, Kind
from dtk.pipeline.schedule import Schedule

PARTNER = {Kind.SEND_F: (Kind.RECV_F, 1), Kind.SEND_B: (Kind.RECV_B, -1)}


class Refused(Exception):  # noqa: N818  (a verdict, not an error of the program)
    pass


class Executor:
    def __init__(self, schedule: Schedule, rendezvous: bool, resident: int | None, seed: int) -> None:
        self.ranks = schedule.rank_of_stage
        self.last = len(self.ranks) - 1
        self.num_microbatches = schedule.num_microbatches
        self.lists = [deque(row) for row in schedule.actions]
        everything = [action for row in schedule.actions for action in row]
        self.sends = any(action.kind in TRANSFER_KINDS for action in everything)
        self.gathers = any(action.kind is Kind.UNSHARD for action in everything)
        self.reduces = any(action.kind is Kind.REDUCE_GRAD for action in everything)
        self.rendezvous, self.resident, self.random = rendezvous, resident, random.Random(seed)
        self.tensors = {("input", 0, m) for m in range(schedule.num_microbatches)}
        self.gathered: dict[int, set[int]] = defaultdict(set)
        self.fresh: set[int] = set()  # stages with gradients that are not reduced
        self.sums: dict[int, list[int]] = defaultdict(list)
        self.channels: dict[tuple[int, int], deque[tuple[str, int, int]]] = defaultdict(deque)

    def run(self) -> None:
        waiting = [rank for rank, row in enumerate(self.lists) if row]
        while waiting:
            self.random.shuffle(waiting)
            moved = False
            for rank in waiting:
                while self.lists[rank] and self.step(rank):
                    moved = True
            if not moved:
                raise Refused("all ranks wait")
            waiting = [rank for rank in waiting if self.lists[rank]]
        wanted = list(range(self.num_microbatches))
        if any(sorted(self.sums[stage]) != wanted for stage in range(self.last + 1)):
            raise Refused("gradients are missing")
        if self.tensors or any(self.channels.values()):
            raise Refused("something is left over")
        if (self.reduces and self.fresh) or any(self.gathered.values()):
            raise Refused("not reduced, or not freed")

    def step(self, rank: int) -> bool:
        action = self.lists[rank][0]
        if action.sub_actions and action.kind is not Kind.OVERLAP_F_B:
            raise Refused("a pair by another name")
        if action.kind in TRANSFER_KINDS:
            return self.transfer(rank)
        if action.kind is Kind.UNSHARD:
            if action.stage in self.gathered[rank] or len(self.gathered[rank]) == self.resident:
                raise Refused("gathered twice, or too many")
            self.gathered[rank].add(action.stage)
        elif action.kind is Kind.RESHARD:
            if action.stage not in self.gathered[rank]:
                raise Refused("freed, not gathered")
            self.gathered[rank].remove(action.stage)
        elif action.kind is Kind.REDUCE_GRAD:
            if action.stage not in self.fresh or self.ranks[action.stage] != rank:
                raise Refused("nothing to reduce")
            self.fresh.remove(action.stage)
        else:
            needed = {
                name for part in action.parts for name in self.needs(part.stage, part.kind, part.microbatch)
            }
            if not needed <= self.tensors:
                return False
            self.tensors -= needed
            for part in action.parts:
                self.compute(rank, part.stage, part.kind, part.microbatch)
        self.lists[rank].popleft()
        return True

    def needs(self, stage: int, kind: Kind, m: int | None) -> list[tuple]:
        if kind is Kind.FORWARD:
            return [("input", stage, m)]
        if kind is Kind.WEIGHT_GRAD:
            return [("kept for W", stage, m)]
        return [("kept", stage, m), ("gradient", stage, m)]

    def compute(self, rank: int, stage: int, kind: Kind, m: int | None) -> None:
        if not 0 <= stage <= self.last or self.ranks[stage] != rank:
            raise Refused("a stage of another rank")
        if self.gathers and kind is not Kind.WEIGHT_GRAD and stage not in self.gathered[rank]:
            raise Refused("parameters are not there")
        if kind is Kind.FORWARD:
            self.tensors.add(("kept", stage, m))
            if stage == self.last:
                self.tensors.add(("gradient", stage, m))
            else:
                self.hand_over(("input", stage + 1, m), stage)
        elif kind is not Kind.WEIGHT_GRAD and stage > 0:
            self.hand_over(("gradient", stage - 1, m), stage)
        if kind is Kind.INPUT_GRAD:
            self.tensors.add(("kept for W", stage, m))
        elif kind is not Kind.FORWARD:
            self.sums[stage].append(m)
            self.fresh.add(stage)

    def hand_over(self, tensor: tuple, stage: int) -> None:
        away = self.sends and self.ranks[tensor[1]] != self.ranks[stage]
        self.tensors.add(("to send", *tensor) if away else tensor)

    def transfer(self, rank: int) -> bool:
        action = self.lists[rank][0]
        sends = action.kind in PARTNER
        forward = action.kind in (Kind.SEND_F, Kind.RECV_F)
        source = action.stage if sends else action.stage - (1 if forward else -1)
        target = source + (1 if forward else -1)
        if not (0 <= source <= self.last and 0 <= target <= self.last):
            raise Refused("no such neighbour")
        if self.ranks[source if sends else target] != rank or self.ranks[source] == self.ranks[target]:
            raise Refused("a transfer that does not belong here")
        tensor = ("input" if forward else "gradient", target, action.microbatch)
        channel = self.channels[self.ranks[source], self.ranks[target]]
        if sends:
            return self.send(rank, tensor, channel)
        if not self.rendezvous and channel:
            if channel.popleft() != tensor:
                raise Refused("received in another order")
            self.tensors.add(tensor)
            self.lists[rank].popleft()
            return True
        return False

    def send(self, rank: int, tensor: tuple, channel: deque) -> bool:
        if ("to send", *tensor) not in self.tensors:
            return False
        kind, (receive, step) = self.lists[rank][0].kind, PARTNER[self.lists[rank][0].kind]
        assert kind in PARTNER
        if self.rendezvous:
            peer = self.lists[self.ranks[tensor[1]]]
            wanted = (self.lists[rank][0].stage + step, receive, tensor[2])
            if not peer or peer[0][:3] != wanted:
                return False
            peer.popleft()
            self.tensors.add(tensor)
        else:
            channel.append(tensor)
        self.tensors.remove(("to send", *tensor))
        self.lists[rank].popleft()
        return True


def refusal(
    schedule: Schedule, *, rendezvous: bool = True, resident: int | None = None, seed: int = 0
) -> str | None:
    """Why the schedule does not run, or None if it does."""
    try:
        Executor(schedule, rendezvous, resident, seed).run()
    except Refused as reason:
        return str(reason)
    return None
