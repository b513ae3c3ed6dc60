"""Rings played out step by step: every chunk over every link, all groups of a machine at the same time.

A collective cuts its data into as many channels as its group has ranks on a node; each channel is a ring
that leaves every node through the NIC of another of these ranks. In a step each rank passes one chunk on to
the next rank of its ring, and the step lasts until the busiest link is through.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dtk.costmodel.collectives import Collective
from dtk.costmodel.machine import Machine

Link = tuple[str, int, int]


@dataclass(frozen=True)
class Rings:
    """All groups of `num_ranks` ranks that are `stride` apart on a machine without latencies."""

    machine: Machine
    num_ranks: int
    stride: int

    def seconds(self, kind: Collective, size_bytes: float) -> float:
        """The time of the slowest group, when all have the same collective at the same time."""
        rates = {
            "chip": self.machine.fabric_bytes_per_s * self.machine.constants.fabric_share,
            "pair": self.machine.pair_bytes_per_s * self.machine.constants.fabric_share,
            "node": self.machine.network_bytes_per_s * self.machine.constants.network_share,
            "nic": self.machine.chip_network_bytes_per_s * self.machine.constants.network_share,
        }
        steps = (self.num_ranks - 1) * (2 if kind == "all_reduce" else 1)
        load: Counter[Link] = Counter()
        for group in self._groups():
            channels = list(self._channels(group))
            chunk_bytes = size_bytes / self.num_ranks / len(channels)
            for ring in channels:
                for sender, receiver in zip(ring, [*ring[1:], ring[0]], strict=True):
                    for link in self._links(sender, receiver):
                        load[link] += chunk_bytes
        # Every step loads the links alike: each rank passes on a chunk of the same size.
        return sum(max(moved / rates[link[0]] for link, moved in load.items()) for _ in range(steps))

    def _groups(self) -> Iterator[list[int]]:
        block = self.num_ranks * self.stride
        for first in range(0, self.machine.num_chips, block):
            for offset in range(self.stride):
                yield list(range(first + offset, first + block, self.stride))

    def _channels(self, group: list[int]) -> Iterator[list[int]]:
        """Rings of the group; in the c-th, the c-th rank of a node is the last on it."""
        nodes: dict[int, list[int]] = {}
        for rank in group:
            nodes.setdefault(rank // self.machine.chips_per_node, []).append(rank)
        if len(nodes) == 1:
            yield from self._inside(group)
            return
        for channel in range(min(map(len, nodes.values()))):
            yield [rank for own in nodes.values() for rank in own[channel + 1 :] + own[: channel + 1]]

    def _inside(self, group: list[int]) -> Iterator[list[int]]:
        """In a switch one ring has a chip's whole rate; in a mesh of n, rings of all n - 1 strides."""
        if self.machine.pair_bytes_per_s >= self.machine.fabric_bytes_per_s:
            yield group
            return
        for stride in range(1, len(group)):
            yield [group[stride * step % len(group)] for step in range(len(group))]

    def _links(self, sender: int, receiver: int) -> Iterator[Link]:
        chips = self.machine.chips_per_node
        if sender // chips == receiver // chips:
            yield "chip", sender, -1
            yield "pair", sender, receiver
        else:
            yield "nic", sender, -1
            yield "node", sender // chips, -1
