"""ZeroPP's order: the author's worked example, and the idle time and memory that follow from the rule."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.action import Kind
from dtk.pipeline.generators.zeropp import zeropp
from dtk.pipeline.schedule import Schedule
from tests.pipeline.generators.timeline import draw, execute


def test_worked_example() -> None:
    golden = Path(__file__).parent / "golden" / "zeropp_p4_v2_u4.txt"
    assert draw(zeropp(4, 2, 4, unit=4)) + "\n" == golden.read_text(encoding="utf-8")


def test_oldest_weight_gradient_first() -> None:
    last_rank = zeropp(4, 2, 4, unit=4, weight_order="fifo").actions[3]
    weight_grads = [str(action) for action in last_rank if action.kind is Kind.WEIGHT_GRAD]
    assert weight_grads == ["7W0", "7W1", "7W2", "7W3", "3W0", "3W1", "3W2", "3W3"]


def test_units_follow_one_another_and_the_last_is_short() -> None:
    whole, first, last = zeropp(4, 2, 7, unit=4), zeropp(4, 2, 4, unit=4), zeropp(4, 2, 3, unit=4)
    for row, first_row, last_row in zip(whole.actions, first.actions, last.actions, strict=True):
        assert row[: len(first_row)] == first_row
        moved = [action._replace(microbatch=4 + (action.microbatch or 0)) for action in last_row]
        assert list(row[len(first_row) :]) == moved


@pytest.mark.parametrize(
    ("unit", "num_microbatches", "slots", "idle"),
    [(4, 4, 27, 3), (4, 8, 54, 6), (8, 8, 51, 3), (8, 32, 195, 3)],
)
def test_published_slots(unit: int, num_microbatches: int, slots: int, idle: int) -> None:
    timeline = execute(zeropp(4, 2, num_microbatches, unit=unit))
    assert (timeline.makespan, timeline.idle) == (slots, [idle] * 4)


def test_warm_up_pairs_and_weight_gradients_kept_back() -> None:
    rows = zeropp(4, 2, 8, unit=8).actions
    warm_ups = [next(i for i, action in enumerate(row) if action.kind is Kind.INPUT_GRAD) for row in rows]
    assert warm_ups == [15, 13, 11, 9]  # 14, 12, 10, 8 and the first pair's forward
    for rank, row in enumerate(rows):
        last_forward = max(i for i, action in enumerate(row) if action.kind is Kind.FORWARD)
        until_then = [action.kind for action in row[: last_forward + 3]]
        kept_back = until_then.count(Kind.INPUT_GRAD) - until_then.count(Kind.WEIGHT_GRAD)
        assert kept_back == 2 * rank + 1


def _expected_idle(num_ranks: int, num_chunks: int, unit: int, num_units: int) -> int:
    """Return the published idle slots where all times are 1."""
    fill = num_ranks - 1
    if unit >= 2 * num_ranks - 1:
        return fill + (num_units - 1) * (unit == 2 * num_ranks - 1)
    if unit >= num_ranks:
        return fill + (num_units - 1) * (2 * num_ranks - 1 - unit)
    return num_units * (fill + num_chunks * (num_ranks - unit))


@pytest.mark.parametrize("num_ranks", range(2, 9))
@pytest.mark.parametrize("num_chunks", [2, 3, 4])
def test_idle_time_and_memory_of_equal_costs(num_ranks: int, num_chunks: int) -> None:
    for unit in range(-(-num_ranks // 2), 2 * num_ranks + 3):
        for num_units in (1, 2, 3):
            schedule = zeropp(num_ranks, num_chunks, unit * num_units, unit=unit)
            expected = _expected_idle(num_ranks, num_chunks, unit, num_units)
            assert execute(schedule).idle == [expected] * num_ranks, (unit, num_units)
            if unit >= num_ranks:
                peak = min(unit * num_chunks, (num_chunks - 1) * unit + 2 * num_ranks)
                assert _peak_activations(schedule) == [peak] * num_ranks, (unit, num_units)


def _peak_activations(schedule: Schedule) -> list[int]:
    """Return each rank's most activations alive, forward to weight gradient; the order alone decides."""
    peaks = []
    for row in schedule.actions:
        alive = peak = 0
        for action in row:
            alive += (action.kind is Kind.FORWARD) - (action.kind is Kind.WEIGHT_GRAD)
            peak = max(peak, alive)
        peaks.append(peak)
    return peaks


@pytest.mark.parametrize(("unit", "num_units"), [(4, 1), (4, 3), (8, 3)])
def test_without_the_split_each_unit_idles_twice_the_fill(unit: int, num_units: int) -> None:
    schedule = zeropp(4, 2, unit * num_units, unit=unit, split=False)
    assert execute(schedule).idle == [num_units * 6] * 4
    for row in schedule.actions:
        for action, following in pairwise(row):
            if action.kind is Kind.INPUT_GRAD:
                assert following == action._replace(kind=Kind.WEIGHT_GRAD)


@given(sizes=st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 12)), unit=st.integers(1, 14))
def test_a_unit_at_least_as_large_as_all_micro_batches_changes_nothing(
    sizes: tuple[int, int, int], unit: int
) -> None:
    num_microbatches = sizes[2]
    same = zeropp(*sizes, unit=max(unit, num_microbatches))
    assert same.actions == zeropp(*sizes, unit=num_microbatches).actions


def test_the_default_unit_is_two_micro_batches_a_rank() -> None:
    assert zeropp(3, 2, 12).settings == {"unit": 6, "weight_order": "lifo", "split": True}
    assert zeropp(3, 2, 12).actions == zeropp(3, 2, 12, unit=6).actions
