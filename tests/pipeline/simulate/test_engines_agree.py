"""The native simulator and the plain Python one say exactly the same, on thousands of random schedules."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate.arrays import ArraySimulation
from dtk.pipeline.simulate.oracle import Oracle
from tests.pipeline.random_schedules import random_costs, random_schedule

pytestmark = pytest.mark.native


def everything(
    engine: type[ArraySimulation | Oracle], schedule: Schedule, costs: StageCosts, synchronised: bool
) -> list[object]:
    """Return all that a simulation tells, or why there is none."""
    try:
        run = engine(schedule, costs, synchronise_optimizer=synchronised)
    except InputError as error:
        return [str(error)]
    return [run.simulation(), run.tasks(), run.memory_steps()]


def assert_agreement(source: random.Random, schedule: Schedule) -> bool:
    """Compare the engines, and say whether the schedule can run."""
    costs, synchronised = random_costs(source, schedule.num_stages), source.random() < 0.5
    python = everything(Oracle, schedule, costs, synchronised)
    native = everything(ArraySimulation, schedule, costs, synchronised)
    for ours, theirs in zip(native, python, strict=True):
        assert ours == theirs
    return len(python) == 3


@pytest.mark.parametrize("block", range(4))
def test_schedules_that_run(block: int) -> None:
    for seed in range(500 * block, 500 * (block + 1)):
        source = random.Random(seed)
        runs = assert_agreement(source, random_schedule(source))
        assert runs, seed


@pytest.mark.parametrize("block", range(4))
def test_schedules_that_may_not_run(block: int) -> None:
    """Lists out of order, with actions that are missing, doubled or on another rank."""
    num_running = 0
    for seed in range(400 * block, 400 * (block + 1)):
        source = random.Random(seed)
        num_running += assert_agreement(source, damaged(source, random_schedule(source)))
    assert 20 < num_running < 380


@given(st.randoms(use_true_random=False))
def test_any_schedule(source: random.Random) -> None:
    assert_agreement(source, random_schedule(source))


def damaged(source: random.Random, schedule: Schedule) -> Schedule:
    """Return the schedule with something wrong in it, or something moved."""
    rows = [list(row) for row in schedule.actions]
    row = source.choice(rows)
    if not row:
        return schedule
    place = source.randrange(len(row))
    harm = source.choice(["move", "move", "move", "drop", "double", "other rank"])
    if harm == "double":
        row.insert(source.randrange(len(row) + 1), row[place])
    else:
        action = row.pop(place)
        target = source.choice(rows) if harm == "other rank" else row
        if harm != "drop":
            target.insert(source.randrange(len(target) + 1), action)
    return schedule.with_actions(rows)
