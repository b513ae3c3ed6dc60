"""Times of collectives and messages: rings over the links of a machine, as NCCL's large-message algorithms.

A ring over n ranks moves (n - 1)/n of the data past each link for an all-gather or a reduce-scatter, and
twice that for an all-reduce (Patarasuk and Yuan 2009). Between nodes the ring is as fast as the NICs that its
ranks share with the groups beside it, if those are slower than the links inside. It leaves out trees,
in-network reduction and congestion of the network's core.
"""

import math
from dataclasses import dataclass
from typing import Literal

from dtk.costmodel.constants import StackConstants
from dtk.costmodel.machine import Machine
from dtk.costmodel.placement import RankGroup

__all__ = ["Collective", "Communication"]

Collective = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True, slots=True)
class Communication:
    """A machine and the software that communicates on it.

    Attributes:
        machine: Links and what is reached of them.
        stack: What software adds.
    """

    machine: Machine
    stack: StackConstants

    def ring_bytes_per_s(self, group: RankGroup) -> float:
        """Return the rate of a group's ring: that of its slowest hop."""
        machine = self.machine
        inside = math.inf
        if group.num_ranks > group.num_nodes or group.others_inside:
            # In a mesh each pair has its own link: a group reaches only those among its members.
            reached = machine.pair_bytes_per_s * max(1, group.ranks_per_node - 1)
            inside = min(machine.fabric_bytes_per_s, reached)
            inside *= machine.constants.fabric_share
        if group.num_nodes == 1:
            return inside
        shared = machine.network_bytes_per_s / group.groups_per_node
        own = machine.chip_network_bytes_per_s * group.ranks_per_node
        return min(inside, min(shared, own) * machine.constants.network_share)

    def collective_s(self, kind: Collective, size_bytes: float, group: RankGroup) -> float:
        """Return the time of a collective over `size_bytes`, the whole tensor of an all-gather included.

        Args:
            kind: Which.
            size_bytes: Bytes of the tensor that each rank reduces, or has gathered in the end, or scatters.
            group: The ranks.
        """
        if group.num_ranks < 2 or size_bytes <= 0:
            return 0.0
        rounds = 2 if kind == "all_reduce" else 1
        share = (group.num_ranks - 1) / group.num_ranks
        moved_s = rounds * share * size_bytes / self.ring_bytes_per_s(group)
        return moved_s + rounds * self._hops_s(group) + self.stack.collective_s * math.log2(group.num_ranks)

    def transfer_s(
        self, size_bytes: float, *, crosses_nodes: bool, senders_per_node: int | None = None
    ) -> float:
        """Return the time of a message between stages while other chips of a node send theirs.

        Args:
            size_bytes: Bytes of one chip's message.
            crosses_nodes: Whether the stages lie on different nodes.
            senders_per_node: Chips of a node that send through its NICs at the same time; all without it.
        """
        machine = self.machine
        if crosses_nodes:
            shared = machine.network_bytes_per_s / (senders_per_node or machine.chips_per_node)
            rate = min(shared, machine.chip_network_bytes_per_s) * machine.constants.network_share
            latency_s = machine.network_latency_s
        else:
            rate = machine.pair_bytes_per_s * machine.constants.fabric_share
            latency_s = machine.fabric_latency_s
        return size_bytes / rate + latency_s + self.stack.transfer_s

    def _hops_s(self, group: RankGroup) -> float:
        """Latency of a tree's depth: between nodes, then inside one."""
        machine = self.machine
        across = math.ceil(math.log2(group.num_nodes)) * machine.network_latency_s
        most_per_node = -(-group.num_ranks // group.num_nodes)
        return across + math.ceil(math.log2(most_per_node)) * machine.fabric_latency_s
