"""What to keep when not everything fits: optimal eviction over a known sequence of uses.

Both the gathered parameters of a rank and its unsharded gradients are such a cache: few places, and a list of
actions that says which stage is touched when. Evicting what is used again last (Belady) fetches the fewest
times.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

__all__ = ["Residency", "plan_residencies"]

_NEVER = 2**62


class Residency(NamedTuple):
    """One stay of a stage: it is needed from action `first` to action `last` of the rank, both included."""

    stage: int
    first: int
    last: int


def plan_residencies(
    uses: Sequence[tuple[int, ...]], places: int, *, released_after: Collection[int] = ()
) -> list[Residency]:
    """Return the fewest stays that serve all uses with at most `places` stages held at any time.

    Args:
        uses: For each action of the rank the stages it touches, often one, sometimes none. None touches more
            than `places`.
        places: How many stages are held at once.
        released_after: Indices of actions after which the stages that they touch are given up in any case.

    Returns:
        The stays, ordered by the action that begins them.
    """
    following = _next_uses(uses)
    held: dict[int, list[int]] = {}  # stage -> [first use, last use so far, next use]
    stays: list[Residency] = []

    def end(stage: int) -> None:
        first, last, _ = held.pop(stage)
        stays.append(Residency(stage, first, last))

    for index, stages in enumerate(uses):
        for stage, next_use in zip(stages, following[index], strict=True):
            if stage in held:
                held[stage][1:] = [index, next_use]
                continue
            if len(held) == places:
                # A stage that this action touches is used now, hence never the one used again last.
                keep = dict.fromkeys(stages, index)
                end(max(held, key=lambda each: keep.get(each, held[each][2])))
            held[stage] = [index, index, next_use]
        if index in released_after:
            for stage in stages:
                end(stage)
    for stage in list(held):
        end(stage)
    return sorted(stays, key=lambda stay: stay.first)


def _next_uses(uses: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return for each action, for each stage that it touches, the index of that stage's next use."""
    upcoming: dict[int, int] = {}
    following: list[tuple[int, ...]] = []
    for index in range(len(uses) - 1, -1, -1):
        following.append(tuple(upcoming.get(stage, _NEVER) for stage in uses[index]))
        upcoming.update(dict.fromkeys(uses[index], index))
    return following[::-1]
