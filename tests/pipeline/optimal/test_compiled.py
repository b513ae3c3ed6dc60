"""The compiled functions guard themselves: no order of tasks, however wrong, may read out of bounds."""

import signal
from types import FrameType

import pytest

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.optimal import optimise
from dtk.pipeline.optimal.search import makespan_of
from tests.pipeline.optimal.test_optimise import problem

pytestmark = pytest.mark.native

GOOD = [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]  # 2 stages, 2 micro-batches: F F I I W W on each


def small() -> object:
    costs = StageCosts.of(2, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    return problem(rank_of_stage=(0, 1), num_microbatches=2, costs=costs, chunks=2)


def test_the_good_order_ends_when_counted_by_hand() -> None:
    # r0: F0 F1 .  .  I0 I1 W0 W1 / r1: . F0 F1 I0 I1 W0 W1 -> rank 0: I0 at 4, I1 at 5, W0 6, W1 7.
    assert makespan_of(small(), GOOD) == 8  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "order",
    [
        [GOOD[0]],
        [GOOD[0], GOOD[1][:-1]],
        [GOOD[0], [*GOOD[1][:-1], 12]],
        [GOOD[0], [*GOOD[1][:-1], -1]],
        [GOOD[0], [*GOOD[1][:-1], 2**31 - 1]],
        [GOOD[1], GOOD[0]],
        [[1, 0, 4, 5, 8, 9], GOOD[1]],
        [[0, 4, 8, 5, 1, 9], GOOD[1]],
        [[0, 0, 4, 5, 8, 9], GOOD[1]],
    ],
)
def test_wrong_orders_are_refused(order: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"rank|task|order|missing|twice"):
        makespan_of(small(), order)  # type: ignore[arg-type]


def test_ranks_that_wait_for_each_other_have_no_end() -> None:
    two_chunks = problem(num_microbatches=1)
    # On each rank F, F of the second chunk, its I, I, W, W.
    order = [[rank + 3 * place for place in (0, 1, 3, 2, 4, 5)] for rank in range(3)]
    assert makespan_of(two_chunks, order) is not None
    order[0][0], order[0][1] = order[0][1], order[0][0]  # the second chunk's forward first
    assert makespan_of(two_chunks, order) is None


def test_memory_does_not_grow_with_the_square_of_the_ranks() -> None:
    # A table of all pairs of ranks would take 17 GB, and its index would not fit into 32 bits.
    ranks = 46_400
    costs = StageCosts.of(ranks, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    long = problem(rank_of_stage=tuple(range(ranks)), num_microbatches=1, costs=costs, chunks=1)
    order = [[rank, ranks + rank, 2 * ranks + rank] for rank in range(ranks)]
    assert makespan_of(long, order) == 2 * ranks + 1


def test_what_a_signal_raises_other_than_ctrl_c_ends_the_search() -> None:
    def too_late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("too late")

    costs = StageCosts.of(8, forward_ns=[3, 5, 7, 3, 4, 9, 2, 6], input_grad_ns=4, weight_grad_ns=3)
    uneven = problem(rank_of_stage=tuple(range(8)), num_microbatches=30, costs=costs, chunks=5)
    before = signal.signal(signal.SIGALRM, too_late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(TimeoutError, match="too late"):
            optimise(uneven, effort=10**12)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
