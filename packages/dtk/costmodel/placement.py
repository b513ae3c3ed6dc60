"""Which ranks of a group share a node, and which other groups share the node's NICs with it.

Ranks are numbered with tensor parallelism innermost, then data parallelism (of a sharded group its members
before its replicas, as a device mesh has them), and the pipeline outermost, as Megatron-LM and DeepSpeed
number them; with `replicas_outermost` the replicas of sharded groups come outside the pipeline. Nodes are
filled one after another. Where groups and nodes do not divide, groups of one kind lie differently; all wait
for the slowest, so that one group stands for all that has the fewest ranks on a node and shares it with most.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from dtk.costmodel.machine import Machine

__all__ = ["RankGroup", "place_group"]


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that communicate, on like nodes.

    Attributes:
        num_ranks: Ranks of the group.
        ranks_per_node: Of these, on the node of the group that has the fewest.
        groups_per_node: Groups of the same kind, all active at the same time, that share a node's NICs with
            it; where no group leaves its node, those on a node.
        num_nodes: Nodes that the group is on.
        others_inside: Whether this group has no two ranks on a node, but others of its kind have, which are
            waited for as well.
    """

    num_ranks: int
    ranks_per_node: int
    groups_per_node: int
    num_nodes: int
    others_inside: bool = False


def place_group(machine: Machine, num_ranks: int, stride: int) -> RankGroup:
    """Return the placement of groups of `num_ranks` ranks that are `stride` apart and fill the machine.

    Args:
        machine: Where they are.
        num_ranks: Ranks of each group.
        stride: From one rank of a group to the next. The groups of `num_ranks * stride` ranks in a row lie
            between each other, and the next such block follows.
    """
    chips = machine.chips_per_node
    if num_ranks == 1:
        return RankGroup(1, 1, chips, 1)
    if stride >= chips:
        return RankGroup(num_ranks, 1, chips, num_ranks)
    # Where ranks lie on nodes repeats after so many of a group; what a whole number of repetitions adds is
    # nodes like the others.
    period = chips // math.gcd(stride, chips)
    skipped = max(0, num_ranks // period - 3)
    few = num_ranks - skipped * period
    ranks_per_node, groups_per_node, num_nodes, fewest_nodes = _slowest(chips, few, stride)
    return RankGroup(
        num_ranks,
        ranks_per_node,
        groups_per_node,
        num_nodes + skipped * period * stride // chips,
        others_inside=num_nodes == few > fewest_nodes,
    )


@lru_cache(maxsize=4096)
def _slowest(chips: int, num_ranks: int, stride: int) -> tuple[int, int, int, int]:
    """Return fewest ranks of a group on a node, most groups that share one, most and fewest nodes of one."""
    block = num_ranks * stride
    groups = [
        Counter(rank // chips for rank in range(first + offset, first + offset + block, stride))
        for first in range(0, math.lcm(block, chips), block)
        for offset in range(stride)
    ]
    crossing = [nodes for nodes in groups if len(nodes) > 1]
    counted = crossing or groups
    sharing = Counter(node for nodes in counted for node in nodes)
    return (
        min(min(nodes.values()) for nodes in counted),
        max(sharing.values()),
        max(len(nodes) for nodes in counted),
        min(len(nodes) for nodes in groups),
    )
