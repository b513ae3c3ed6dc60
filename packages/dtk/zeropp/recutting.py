"""The costs of the same model cut into another number of stages, to compare schedules of unlike chunks."""

from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import pairwise

from dtk.pipeline.costs import StageCosts

__all__ = ["recut"]

_BY_START = ("gradient_transfer_ns",)
_BY_END = ("activation_transfer_ns", "activation_message_bytes")


def recut(costs: StageCosts, num_stages: int) -> StageCosts:
    """Return the costs of the model in `num_stages` equal parts of its stages.

    What is computed, held, gathered or reduced is summed over a part, in whole numbers whose sum over all
    stages stays the same; inside a stage it counts as spread evenly. A message is that of the stage where the
    part ends (an activation) or begins (a gradient).
    """
    ratio = Fraction(costs.num_stages, num_stages)
    places = [stage * ratio for stage in range(num_stages + 1)]
    values: dict[str, list[int]] = {}
    for name in (each.name for each in fields(StageCosts)):
        old: tuple[int, ...] = getattr(costs, name)
        if name in _BY_START:
            values[name] = [old[int(place)] for place in places[:-1]]
        elif name in _BY_END:
            values[name] = [old[-int(-place // 1) - 1] for place in places[1:]]
        else:
            sums = _cumulated(old, places)
            values[name] = [after - before for before, after in pairwise(sums)]
    return StageCosts(**{name: tuple(each) for name, each in values.items()})


def _cumulated(values: Sequence[int], places: Sequence[Fraction]) -> list[int]:
    """Return the sums of the values up to each place, rounded down."""
    before = [0]
    for value in values:
        before.append(before[-1] + value)
    return [
        before[int(place)] + (int(place % 1 * values[int(place)]) if place % 1 else 0) for place in places
    ]
