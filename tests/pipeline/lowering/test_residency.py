from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.lowering.residency import Residency, plan_residencies


def fewest_stays(uses: list[tuple[int, ...]], places: int) -> int:
    """Try every eviction."""

    @cache
    def best(index: int, held: frozenset[int]) -> int:
        if index == len(uses):
            return 0
        missing = frozenset(uses[index]) - held
        options = [held | missing]
        while any(len(option) > places for option in options):
            options = [option - {one} for option in options for one in option - frozenset(uses[index])]
        return len(missing) + min(best(index + 1, option) for option in options)

    return best(0, frozenset())


USES = st.lists(st.sampled_from([(), (0,), (1,), (2,), (3,), (0, 1), (1, 3), (2, 0)]), max_size=9)


@given(USES, st.integers(2, 3))
def test_no_eviction_order_has_fewer_stays(uses: list[tuple[int, ...]], places: int) -> None:
    stays = plan_residencies(uses, places)
    assert len(stays) == fewest_stays(uses, places)
    check_stays(uses, places, stays)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 4))
def test_single_uses(stages: list[int], places: int) -> None:
    uses = [(stage,) for stage in stages]
    stays = plan_residencies(uses, places)
    assert len(stays) == fewest_stays(uses, places)
    check_stays(uses, places, stays)


def check_stays(uses: list[tuple[int, ...]], places: int, stays: list[Residency]) -> None:
    for index, stages in enumerate(uses):
        held = [stay.stage for stay in stays if stay.first <= index <= stay.last]
        assert len(held) == len(set(held)) <= places
        assert set(stages) <= set(held)
    for stay in stays:
        assert stay.stage in uses[stay.first]
        assert stay.stage in uses[stay.last]


def test_a_release_ends_the_stay() -> None:
    assert plan_residencies([(0,), (0,), (0,)], 1, released_after=[1]) == [
        Residency(0, 0, 1),
        Residency(0, 2, 2),
    ]


def test_what_is_used_again_last_makes_room() -> None:
    stays = plan_residencies([(0,), (1,), (2,), (1,), (0,)], 2)
    assert stays == [Residency(0, 0, 0), Residency(1, 1, 3), Residency(2, 2, 2), Residency(0, 4, 4)]
