"""Sharded parameters without units: gathered for every pass of every micro-batch, and freed after it.

That is what a plain sharded pipeline does (FSDP with `reshard_after_forward`): each pass gathers its layers
one after another, and each backward reduces its gradients at once. The memory-efficient 1F1B that ZeroPP
(arXiv 2402.03791) is compared with works like that.
"""

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.schedule import Schedule

__all__ = ["gather_each_pass"]

_GRADIENT_KINDS = frozenset({Kind.FULL_BACKWARD, Kind.WEIGHT_GRAD})


def gather_each_pass(schedule: Schedule) -> Schedule:
    """Return a compute schedule with a gather before each pass, and after it a reduction where it has one."""
    rows = []
    for row in schedule.actions:
        written: list[Action] = []
        for action in row:
            gathers = action.kind is not Kind.WEIGHT_GRAD
            written += [Action(action.stage, Kind.UNSHARD)] if gathers else []
            written.append(action)
            written += [Action(action.stage, Kind.REDUCE_GRAD)] if action.kind in _GRADIENT_KINDS else []
            written += [Action(action.stage, Kind.RESHARD)] if gathers else []
        rows.append(written)
    return schedule.with_actions(rows)
