"""The table of idle times and activations in docs/concepts/pipeline-schedules.md, row by row."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from dtk.pipeline.action import Kind
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.schedule import Schedule
from tests.pipeline.generators.timeline import execute

UNEQUAL = [(1, 1, 1), (7, 5, 3), (5, 7, 3), (9, 9, 2)]  # T_F, T_B, T_W
FORWARD_LIKE_BACKWARD = [(1, 1, 1), (9, 9, 2), (4, 4, 3)]
EQUAL = [(1, 1, 1), (5, 5, 5)]


class Row(NamedTuple):
    """A row of the table: of P, V, M and the times, and what holds for which."""

    idle: Callable[[int, int, int, int], int]  # of P - 1 and the three times
    activations: Callable[[int, int, int], int]  # of P, V and M, on rank 0
    chunks: tuple[int, ...]
    times: list[tuple[int, int, int]]
    least_microbatches: Callable[[int], int]


def _one_f_one_b(hops: int, forward: int, input_grad: int, weight_grad: int) -> int:
    return hops * (forward + input_grad + weight_grad)


TABLE = {
    "gpipe": Row(_one_f_one_b, lambda p, v, m: m, (1,), UNEQUAL, lambda p: p),
    "1f1b": Row(_one_f_one_b, lambda p, v, m: p, (1,), UNEQUAL, lambda p: p),
    "interleaved": Row(
        _one_f_one_b,
        lambda p, v, m: min(v * m, (v - 1) * p + 2 * (p - 1) + 1),
        (2, 3),
        UNEQUAL,
        lambda p: p,
    ),
    "bfs": Row(_one_f_one_b, lambda p, v, m: v * m, (1, 2, 3), UNEQUAL, lambda p: p),
    "zb-h1": Row(
        lambda hops, f, b, w: hops * (f + b - w), lambda p, v, m: p * v, (1, 2, 3), UNEQUAL, lambda p: p
    ),
    "zb-h2": Row(
        lambda hops, f, b, w: hops * max(f, f + b - 2 * w),
        lambda p, v, m: 2 * p - 1,
        (1,),
        UNEQUAL,
        lambda p: 2 * p - 1,
    ),
    "zb-v": Row(lambda hops, f, b, w: hops * f, lambda p, v, m: 2 * p, (2,), EQUAL, lambda p: 2 * p),
    "dualpipe-v": Row(
        lambda hops, f, b, w: hops * (f + 2 * b - w),
        lambda p, v, m: 2 * p + 1,
        (2,),
        FORWARD_LIKE_BACKWARD,
        lambda p: 2 * p,
    ),
    "zeropp": Row(
        lambda hops, f, b, w: hops * f,
        lambda p, v, m: min(2 * p * v, (v - 1) * 2 * p + 2 * p),
        (1, 2, 3),
        EQUAL,
        lambda p: 2 * p,
    ),
}


def test_every_schedule_has_a_row() -> None:
    assert list(TABLE) == list(SCHEDULES)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", SCHEDULES)
def test_idle_time_and_activations(name: str, num_ranks: int) -> None:
    row = TABLE[name]
    least = row.least_microbatches(num_ranks)
    # ZeroPP's row is for whole units of 2P; interleaved groups hold more activations unless P divides M.
    counts = [least * k for k in (1, 2, 3)] if name == "zeropp" else range(least, least + num_ranks + 2)
    for num_microbatches in counts:
        for num_chunks in row.chunks:
            schedule = make_schedule(
                name, num_ranks=num_ranks, num_chunks=num_chunks, num_microbatches=num_microbatches
            )
            for times in row.times:
                timeline = execute(schedule, forward=times[0], input_grad=times[1], weight_grad=times[2])
                assert timeline.idle == [row.idle(num_ranks - 1, *times)] * num_ranks
            if num_microbatches % num_ranks == 0:
                expected = row.activations(num_ranks, num_chunks, num_microbatches)
                assert _peak_on_rank_0(schedule) == expected


def _peak_on_rank_0(schedule: Schedule) -> int:
    alive = peak = 0
    for part in (part for action in schedule.actions[0] for part in action.parts):
        alive += (part.kind is Kind.FORWARD) - (part.kind in (Kind.FULL_BACKWARD, Kind.WEIGHT_GRAD))
        peak = max(peak, alive)
    return peak
