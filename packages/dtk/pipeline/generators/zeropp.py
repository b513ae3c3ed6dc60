"""ZeroPP (arXiv 2402.03791): units of U micro-batches, breadth-first over the chunks, with a split backward.

Source: the author's rule for one unit (warm-up, pairs on the last chunk, cool-down, and how many weight
gradients each rank keeps back). Left out: a branch of the author's code that can never run, the units that
overlap each other (his are issued strictly one after another), and gathers and reductions, which a lowering
pass adds.
"""

from collections import deque
from collections.abc import Iterator
from typing import Literal

from dtk.errors import InputError
from dtk.pipeline.action import Action, Kind
from dtk.pipeline.generators._row import check_positive, check_sizes
from dtk.pipeline.schedule import Schedule, loop_placement

__all__ = ["WeightOrder", "zeropp"]

WeightOrder = Literal["lifo", "fifo"]


def zeropp(
    num_ranks: int,
    num_chunks: int,
    num_microbatches: int,
    *,
    unit: int | None = None,
    weight_order: WeightOrder = "lifo",
    split: bool = True,
) -> Schedule:
    """Return ZeroPP's schedule. Every chunk's parameters are needed in one go for a whole unit.

    Args:
        num_ranks: P.
        num_chunks: V.
        num_microbatches: M. If U does not divide it, the last unit is short.
        unit: U, the micro-batches of a unit. None stands for 2P: from there on, and for equal costs, the idle
            time does not grow with the number of units.
        weight_order: Which weight gradient runs next: the newest (`lifo`, the author's, which stays on the
            chunk in use) or the oldest (`fifo`, with the split only).
        split: Keep weight gradients back to fill idle time. Otherwise each runs right after its input
            gradient, which is on its way to the stage before by then.

    Raises:
        InputError: If a size or the unit is below 1, there would be too many actions, or an option is unknown
            or without effect.
    """
    check_sizes(num_ranks, num_chunks, num_microbatches)
    size = 2 * num_ranks if unit is None else unit
    check_positive("unit", size)
    if weight_order not in ("lifo", "fifo"):
        raise InputError("must be lifo or fifo", field="weight_order", value=weight_order)
    if not split and weight_order != "lifo":
        raise InputError("has no effect without the split", field="weight_order", value=weight_order)
    rows = []
    for rank in range(num_ranks):
        stages = range(rank, num_ranks * num_chunks, num_ranks)
        actions: list[Action] = []
        for first in range(0, num_microbatches, size):
            microbatches = range(first, min(first + size, num_microbatches))
            kept_back = 2 * rank + 1 if split else 0
            actions += _unit(stages, microbatches, 2 * (num_ranks - 1 - rank), kept_back, weight_order)
        rows.append(tuple(actions))
    settings: dict[str, int | str | bool] = {"unit": size, "weight_order": weight_order, "split": split}
    placement = loop_placement(num_ranks, num_chunks)
    return Schedule("zeropp", placement, tuple(rows), num_microbatches, settings)


def _unit(
    stages: range, microbatches: range, lead: int, kept_back: int, weight_order: WeightOrder
) -> Iterator[Action]:
    """Yield one rank's actions for one unit.

    Args:
        stages: The rank's stages.
        microbatches: The unit's micro-batches.
        lead: The forwards of the last chunk before its first backward.
        kept_back: The weight gradients that wait while forwards are left.
        weight_order: Which of those that wait comes next.
    """
    forwards = [Action(stage, Kind.FORWARD, m) for stage in stages for m in microbatches]
    backwards = [Action(stage, Kind.INPUT_GRAD, m) for stage in reversed(stages) for m in microbatches]
    warm_up = min(len(forwards), len(forwards) - len(microbatches) + lead)
    num_pairs = len(forwards) - warm_up
    waiting: deque[Action] = deque()
    take = waiting.pop if weight_order == "lifo" else waiting.popleft

    yield from forwards[:warm_up]
    for step, backward in enumerate(backwards):
        if step < num_pairs:
            yield forwards[warm_up + step]
        yield backward
        waiting.append(backward._replace(kind=Kind.WEIGHT_GRAD))
        # From the cool-down on, a weight gradient follows each backward. All pairs are on the last chunk.
        if step >= num_pairs or step >= kept_back:
            yield take()
    while waiting:
        yield take()
