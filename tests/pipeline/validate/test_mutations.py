"""Whatever a mutation does to a schedule, the validator and the executor agree whether it still runs."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.pipeline.action import COMPUTE_KINDS, TRANSFER_KINDS, Action, Kind
from dtk.pipeline.lowering import add_parameters, add_transfers
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.validate import validate
from tests.pipeline.executor import refusal
from tests.pipeline.listed import runnable

Rows = list[list[Action]]


def drop(rows: Rows, choose: random.Random) -> None:
    row = choose.choice([row for row in rows if row])
    del row[choose.randrange(len(row))]


def double(rows: Rows, choose: random.Random) -> None:
    row = choose.choice([row for row in rows if row])
    row.insert(choose.randint(0, len(row)), choose.choice(row))


def move(rows: Rows, choose: random.Random) -> None:
    row = choose.choice([row for row in rows if row])
    action = row.pop(choose.randrange(len(row)))
    row.insert(choose.randint(0, len(row)), action)


def swap(rows: Rows, choose: random.Random) -> None:
    row = choose.choice([row for row in rows if row])
    a, b = choose.randrange(len(row)), choose.randrange(len(row))
    row[a], row[b] = row[b], row[a]


def swap_neighbours(rows: Rows, choose: random.Random) -> None:
    row = choose.choice([row for row in rows if row])
    a = choose.randrange(len(row))
    row[a - 1], row[a] = row[a], row[a - 1]


def misplace(rows: Rows, choose: random.Random) -> None:
    row, other = choose.choice([row for row in rows if row]), choose.choice(rows)
    action = row.pop(choose.randrange(len(row)))
    other.insert(choose.randint(0, len(other)), action)


def rename(rows: Rows, choose: random.Random) -> None:
    row = choose.choice([row for row in rows if row])
    index = choose.randrange(len(row))
    action = row[index]
    if action.kind in COMPUTE_KINDS:
        kinds = [Kind.FORWARD, Kind.FULL_BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD]
    else:
        kinds = sorted(TRANSFER_KINDS) if action.kind in TRANSFER_KINDS else [Kind.UNSHARD, Kind.RESHARD]
    new = (
        action._replace(kind=choose.choice(kinds)),
        action._replace(stage=action.stage + choose.choice([-1, 1])),
    )
    row[index] = choose.choice(new)


def join(rows: Rows, choose: random.Random) -> None:
    """Make a pair of a forward and a backward that stand side by side."""
    row = choose.choice([row for row in rows if row])
    for index in range(len(row) - 1):
        forward, backward = row[index : index + 2]
        if forward.kind is Kind.FORWARD and backward.kind in (Kind.FULL_BACKWARD, Kind.INPUT_GRAD):
            row[index : index + 2] = [Action.pair(forward, backward)]
            return


MUTATIONS = [drop, double, move, swap, swap_neighbours, misplace, rename, join]


def accepted(schedule: Schedule, *, rendezvous: bool, resident: int | None) -> bool:
    refused: InputError | None = None
    try:
        validate(schedule, rendezvous=rendezvous, resident_chunks=resident)
    except InputError as error:
        refused = error
    if refused is not None:
        assert "\n" not in str(refused)
        assert (refused.field or "").startswith("rank ")
    return refused is None


def lowered(schedule: Schedule, parameters: bool, transfers: str, resident: int) -> Schedule:
    if parameters:
        schedule = add_parameters(schedule, resident_chunks=resident, lookahead=1, unit=2)
    if transfers != "none":
        schedule = add_transfers(schedule, receive=transfers)  # type: ignore[arg-type]
    return schedule


@settings(max_examples=1500)
@example(580908, [rename], True, "none", False, 2)  # names a pair as if it were a weight gradient
@given(
    st.integers(0, 10**9),
    st.lists(st.sampled_from(MUTATIONS), min_size=0, max_size=3),
    st.booleans(),
    st.sampled_from(["none", "late", "early"]),
    st.booleans(),
    st.integers(1, 3),
)
def test_validator_and_executor_agree(
    seed: int, mutations: list, parameters: bool, transfers: str, rendezvous: bool, resident: int
) -> None:
    choose = random.Random(seed)
    schedule = lowered(runnable(seed, pairs=resident > 1 or not parameters), parameters, transfers, resident)
    rows = [list(row) for row in schedule.actions]
    for mutate in mutations:
        if any(rows):
            mutate(rows, choose)
    changed = schedule.with_actions(rows)
    reason = refusal(changed, rendezvous=rendezvous, resident=resident, seed=seed)
    assert accepted(changed, rendezvous=rendezvous, resident=resident) == (reason is None), reason
    if not mutations:
        assert reason is None


@pytest.mark.parametrize("seed", range(6))
def test_every_single_drop_and_doubling_is_refused(seed: int) -> None:
    schedule = runnable(seed, pairs=False)
    if schedule.num_stages == 1:  # its one reduction may go: a schedule need not reduce at all
        schedule = add_transfers(schedule)
    else:
        schedule = add_transfers(add_parameters(schedule, reduce="end"))
    for rank, row in enumerate(schedule.actions):
        for position in range(len(row)):
            for replacement in ((), (row[position],) * 2):
                rows = list(schedule.actions)
                rows[rank] = (*row[:position], *replacement, *row[position + 1 :])
                assert not accepted(schedule.with_actions(rows), rendezvous=True, resident=1)
