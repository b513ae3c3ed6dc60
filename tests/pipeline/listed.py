"""Schedules written out by hand, a reader for them, and random ones that run."""

import random

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.schedule import Schedule, loop_placement, v_placement
from tests.pipeline.random_schedules import random_schedule

# ZeroPP, P=4, V=2, U=M=4 at unit costs: the worked example, "F12" is chunk 1, micro-batch 2.
_ZEROPP = """
F00 F01 F02 F03 F10 F11 F12 F13 B10 W10 B11 W11 B12 W12 B13 W13 B00 W00 B01 W01 B02 W02 B03 W03
F00 F01 F02 F03 F10 F11 F12 F13 B10 W10 B11 W11 B12 W12 B13 W13 B00 W00 B01 W01 B02 W02 B03 W03
F00 F01 F02 F03 F10 F11 F12 B10 F13 B11 B12 W12 B13 W13 B00 W00 B01 W01 B02 W02 B03 W03 W11 W10
F00 F01 F02 F03 F10 B10 F11 B11 F12 B12 F13 B13 B00 W00 B01 W01 B02 W02 B03 W03 W13 W12 W11 W10
"""


def from_text(name: str, rank_of_stage: tuple[int, ...], num_microbatches: int, text: str) -> Schedule:
    rows = tuple(tuple(map(Action.parse, line.split())) for line in text.strip().splitlines())
    return Schedule(name, rank_of_stage, rows, num_microbatches)


def zeropp_p4_v2_u4() -> Schedule:
    kinds = {"F": Kind.FORWARD, "B": Kind.INPUT_GRAD, "W": Kind.WEIGHT_GRAD}
    rows = [
        [Action(int(word[1]) * 4 + rank, kinds[word[0]], int(word[2])) for word in line.split()]
        for rank, line in enumerate(_ZEROPP.strip().splitlines())
    ]
    settings: dict[str, int | str | bool] = {"unit": 4}
    return Schedule("zeropp", loop_placement(4, 2), tuple(map(tuple, rows)), 4, settings)


def one_f_one_b_p3() -> Schedule:
    text = """
    0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3
    1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3
    2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
    """
    return from_text("1f1b", (0, 1, 2), 4, text)


def v_shape_p2() -> Schedule:
    """Two ranks, four stages: stage 1 hands over to stage 2 on rank 1 without a transfer."""
    text = """
    0F0 0F1 3F0 3I0 3W0 3F1 3I1 3W1 0B0 0I1 0W1
    1F0 2F0 1F1 2F1 2I0 1I0 2W0 1W0 2B1 1B1
    """
    return from_text("v", v_placement(2), 2, text)


def overlapped_p2() -> Schedule:
    """Two ranks, two stages, with an overlapped forward and backward."""
    text = """
    0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2
    1F0 (1F1;1I0)OVERLAP_F_B 1W0 1B1 1F2 1B2
    """
    return from_text("overlap", (0, 1), 3, text)


def all_listed() -> list[Schedule]:
    return [zeropp_p4_v2_u4(), one_f_one_b_p3(), v_shape_p2(), overlapped_p2()]


def runnable(seed: int, *, pairs: bool = True) -> Schedule:
    """A random order over a random placement, of compute actions alone; every rank holds a stage."""
    schedule = random_schedule(random.Random(seed), pairs=pairs, parameters=False)
    kept = [rank for rank, row in enumerate(schedule.actions) if row]
    return Schedule(
        schedule.name,
        tuple(map(kept.index, schedule.rank_of_stage)),
        tuple(schedule.actions[rank] for rank in kept),
        schedule.num_microbatches,
    )
