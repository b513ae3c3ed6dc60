"""Gathers and reductions of the named schedules, against counts that were worked out apart from this code."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.action import Kind
from dtk.pipeline.generators.interleaved import interleaved
from dtk.pipeline.generators.looped_bfs import looped_bfs
from dtk.pipeline.generators.zeropp import zeropp
from dtk.pipeline.lowering import add_parameters
from dtk.pipeline.schedule import Schedule


def most(schedule: Schedule, kind: Kind) -> int:
    """The count of the rank with the most."""
    return max(sum(action.kind is kind for action in row) for row in schedule.actions)


# P = 4, V = 4, M = 16: gathers with 1 to 4 resident chunks, the same with 1 where weight gradients need
# parameters, and reductions with 1 and 2 gradient buffers.
COUNTS = [
    (interleaved(4, 4, 16, group_size=4), [99, 18, 11, 4], 99, [16, 12]),
    (interleaved(4, 4, 16, group_size=8), [65, 10, 7, 4], 65, [8, 6]),
    (looped_bfs(4, 4, 16), [7, 6, 5, 4], 7, [4, 4]),
    (zeropp(4, 4, 16, unit=4), [25, 18, 11, 4], 32, [17, 12]),
    (zeropp(4, 4, 16, unit=8), [13, 10, 7, 4], 16, [9, 7]),
]
NAMES = [f"{schedule.name}-{sorted(schedule.settings.items())[-1][1]}" for schedule, *_ in COUNTS]


@pytest.mark.parametrize(("schedule", "gathers", "gathers_with_w", "reductions"), COUNTS, ids=NAMES)
def test_table_of_counts(
    schedule: Schedule, gathers: list[int], gathers_with_w: int, reductions: list[int]
) -> None:
    found = [most(add_parameters(schedule, resident_chunks=k), Kind.UNSHARD) for k in (1, 2, 3, 4)]
    assert found == gathers
    assert most(add_parameters(schedule, weight_grad_needs_parameters=True), Kind.UNSHARD) == gathers_with_w
    lowered = [add_parameters(schedule, reduce="end", gradient_buffers=buffers) for buffers in (1, 2)]
    assert [most(each, Kind.REDUCE_GRAD) for each in lowered] == reductions


@pytest.mark.parametrize(
    ("order", "resident", "needs", "expected"),
    [
        ("lifo", 1, False, 13),
        ("fifo", 1, False, 13),
        ("lifo", 1, True, 16),
        ("fifo", 1, True, 97),
        ("lifo", 2, True, 10),
        ("fifo", 2, True, 10),
    ],
)
def test_order_of_weight_gradients(
    order: Literal["lifo", "fifo"], resident: int, needs: bool, expected: int
) -> None:
    schedule = zeropp(4, 4, 16, unit=8, weight_order=order)
    lowered = add_parameters(schedule, resident_chunks=resident, weight_grad_needs_parameters=needs)
    assert most(lowered, Kind.UNSHARD) == expected


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 12), st.integers(1, 4), st.integers(0, 3))
def test_zeropp_gathers_and_reduces_by_unit(
    num_ranks: int, num_chunks: int, unit: int, units: int, rest: int
) -> None:
    """2V-1 gathers for the first unit and 2V-2 for each further one; V reductions a unit."""
    num_microbatches = unit * units + min(rest, unit - 1)
    units = -(-num_microbatches // unit)
    lowered = add_parameters(zeropp(num_ranks, num_chunks, num_microbatches, unit=unit))
    for row in lowered.actions:
        kinds = [action.kind for action in row]
        assert kinds.count(Kind.UNSHARD) == 2 * num_chunks - 1 + (units - 1) * (2 * num_chunks - 2)
        assert kinds.count(Kind.REDUCE_GRAD) == num_chunks * units
    each = add_parameters(zeropp(num_ranks, num_chunks, num_microbatches, unit=unit), reduce="microbatch")
    assert most(each, Kind.REDUCE_GRAD) == num_chunks * num_microbatches
    once = add_parameters(zeropp(num_ranks, num_chunks, num_microbatches, unit=unit), reduce="end")
    assert most(once, Kind.REDUCE_GRAD) == num_chunks
