"""Which ranks of a group share a node, and which other groups share the node's NICs with it.

Ranks are numbered with tensor parallelism innermost, then data parallelism (of a sharded group its members
before its replicas, as a device mesh has them), and the pipeline outermost, as Megatron-LM and DeepSpeed
number them; with `replicas_outermost` the replicas of sharded groups come outside the pipeline.
"""

from dataclasses import dataclass

from dtk.costmodel.machine import Machine

__all__ = ["RankGroup", "place_group"]


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that communicate, on like nodes.

    Attributes:
        num_ranks: Ranks of the group.
        ranks_per_node: Of these, on one node.
        groups_per_node: Groups of the same kind that have ranks on a node, all active at the same time.
    """

    num_ranks: int
    ranks_per_node: int
    groups_per_node: int

    @property
    def num_nodes(self) -> int:
        """Nodes that the group is on."""
        return -(-self.num_ranks // self.ranks_per_node)


def place_group(machine: Machine, num_ranks: int, stride: int) -> RankGroup:
    """Return the placement of a group of ranks that are `stride` apart."""
    chips = machine.chips_per_node
    per_node = max(1, min(num_ranks, chips // stride)) if stride < chips else 1
    return RankGroup(num_ranks, per_node, max(1, chips // per_node))
