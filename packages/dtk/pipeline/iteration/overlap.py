"""What compute loses while weights are gathered and gradients reduced beside it.

Collectives occupy some of a chip's processors and of its memory's rate. A rank's compute takes longer by the
time that has a collective beside it, times the software's `overlap_slowdown`. That is spread evenly over its
passes, so that no pass gets shorter when another takes longer. It leaves out which operations are hit, and
power.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dtk.pipeline.action import Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule

__all__ = ["slowed_beside_collectives"]


def slowed_beside_collectives(
    costs: StageCosts,
    schedule: Schedule,
    *,
    gather_ns: Sequence[int],
    reduce_ns: Sequence[int],
    slowdown: float,
) -> StageCosts:
    """Return costs whose compute is slowed by the collectives of its rank.

    Args:
        costs: Costs by stage, of compute that has the chip for itself.
        schedule: What each rank does.
        gather_ns: What gathering each stage's weights takes, hidden or not.
        reduce_ns: What reducing each stage's gradients takes.
        slowdown: By how much compute takes longer while a collective runs.
    """
    if not slowdown:
        return costs
    counts = Counter(
        (action.stage, action.kind)
        for row in schedule.actions
        for action in row
        if action.kind in {Kind.UNSHARD, Kind.REDUCE_GRAD}
    )
    more_ns = [0] * costs.num_stages
    for own in schedule.stages_of_rank:
        beside_ns = sum(
            counts[stage, Kind.UNSHARD] * gather_ns[stage]
            + counts[stage, Kind.REDUCE_GRAD] * reduce_ns[stage]
            for stage in own
        )
        compute_ns = schedule.num_microbatches * sum(
            costs.forward_ns[stage] + costs.input_grad_ns[stage] + costs.weight_grad_ns[stage]
            for stage in own
        )
        passes = 3 * schedule.num_microbatches * len(own)
        for stage in own:
            more_ns[stage] = round(slowdown * min(beside_ns, compute_ns) / passes) if passes else 0

    def slowed(times_ns: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(sum, zip(times_ns, more_ns, strict=True)))

    return replace(
        costs,
        forward_ns=slowed(costs.forward_ns),
        input_grad_ns=slowed(costs.input_grad_ns),
        weight_grad_ns=slowed(costs.weight_grad_ns),
    )
