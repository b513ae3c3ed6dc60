"""What cannot be simulated is refused in one line that names the rank, the action and what it waits for."""

import pytest

from dtk.errors import InputError
from dtk.pipeline.action import Action, Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate
from dtk.simulation.engine import Engine

pytestmark = pytest.mark.parametrize("engine", [pytest.param("native", marks=pytest.mark.native), "python"])


def refusal(engine: Engine, rows: list[str], *, num_stages: int = 2, num_microbatches: int = 2) -> str:
    """Return the message for a schedule of two ranks that hold the stages in turn."""
    actions = tuple(tuple(map(Action.parse, row.split())) for row in rows)
    ranks = tuple(stage % 2 for stage in range(num_stages))
    schedule = Schedule("wrong", ranks, actions, num_microbatches)
    costs = StageCosts.of(num_stages, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with pytest.raises(InputError) as caught:
        simulate(schedule, costs, engine=engine)
    return str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1"], "rank 0 waits for ever before 0B1 for 1B1, which no rank lists"),
        (["0F1 0B0 0B1", "1F0 1B0 1F1 1B1"], "rank 0 waits for ever before 0B0 for 0F0, which no rank lists"),
        (["0B0 0F0", "1F0 1B0"], "rank 0 waits for ever before 0B0 for 0F0, which rank 0 never gets to"),
        (
            ["0F0 0I0 0F1 0W0", "1F1 1F0 1B0"],
            "rank 0 waits for ever before 0I0 for 1B0, which rank 1 never gets to",
        ),
        (["0F0 0B0 0W0", "1F0 1B0"], "rank 0 waits for ever before 0W0 for 0I0, which no rank lists"),
        (
            ["0F0 0F1 0B0 0B1", "1F0 (1F1;1B1)OVERLAP_F_B 1B0"],
            "rank 0 waits for ever before 0B0 for 1B0, which rank 1 never gets to",
        ),
        (["0F0", "1F0 1F1"], "rank 1 waits for ever before 1F1 for 0F1, which no rank lists"),
        # What no rank lists is told before what a rank does not get to.
        (
            ["0F0 0B0", "1F0 1F1 1B0"],
            "rank 1 waits for ever before 1F1 for 0F1, which no rank lists",
        ),
    ],
)
def test_deadlocks(engine: Engine, rows: list[str], message: str) -> None:
    assert refusal(engine, rows) == f"schedule: {message}"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0F0 1F0", ""], "rank 0 lists 1F0, but stage 1 is on rank 1"),
        (["0F0 7F0", ""], "rank 0 lists 7F0, but there are stages 0 to 1"),
        (["0F0 0F2", ""], "rank 0 lists 0F2, but there are micro-batches 0 to 1"),
        (["0F0 7UNSHARD", ""], "rank 0 lists 7UNSHARD, but there are stages 0 to 1"),
        (["0F0 (0F2;0B0)OVERLAP_F_B", ""], "rank 0 lists 0F2, but there are micro-batches 0 to 1"),
        (["0F0 0SEND_F7", ""], "rank 0 lists 0SEND_F7, but there are micro-batches 0 to 1"),
        (["0F0 1RECV_F0", ""], "rank 0 lists 1RECV_F0, but stage 1 is on rank 1"),
        (["0F0 0F1 0F0", "1F0"], "rank 0 lists 0F0 a second time"),
        (["0F0 0I0 0B0", "1F0 1B0"], "rank 0 lists 0B0, a second backward of that micro-batch"),
        (["0F0", "1F0 1I0 1W0 1W0"], "rank 1 lists 1W0 a second time"),
    ],
)
def test_misplaced_and_doubled_actions(engine: Engine, rows: list[str], message: str) -> None:
    assert refusal(engine, rows) == f"schedule: {message}"


def test_a_forward_without_a_micro_batch(engine: Engine) -> None:
    schedule = Schedule("wrong", (0,), ((Action(0, Kind.FORWARD),),), 1)
    costs = StageCosts.of(1, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with pytest.raises(InputError, match=r"rank 0 lists 0F, but there are micro-batches 0 to 0"):
        simulate(schedule, costs, engine=engine)


def test_costs_of_another_model(engine: Engine) -> None:
    schedule = Schedule("right", (0,), (), 0)
    costs = StageCosts.of(2, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with pytest.raises(InputError, match=r"^costs: are those of 2 stages, and the schedule has 1$"):
        simulate(schedule, costs, engine=engine)


def test_a_stage_on_no_rank_and_too_many_micro_batches(engine: Engine) -> None:
    costs = StageCosts.of(1, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with pytest.raises(InputError, match=r"^rank_of_stage: stage 0 must be on a rank from 0 to 0"):
        simulate(Schedule("wrong", (1,), ((),), 0), costs, engine=engine)
    with pytest.raises(InputError, match=r"^num_microbatches: with 1 stages there can be at most"):
        simulate(Schedule("wrong", (0,), ((),), 10**9), costs, engine=engine)


FORWARD, BACKWARD = Action(0, Kind.FORWARD, 0), Action(0, Kind.FULL_BACKWARD, 0)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Action(-1, Kind.OVERLAP_F_B), "(?=.*OVERLAP_F_B)(?=.*a pair holds a forward and then a backward)"),
        (Action(0, Kind.OVERLAP_F_B, 0), "a pair holds a forward"),
        (Action.pair(BACKWARD, FORWARD), "a pair holds a forward"),
        (Action.pair(FORWARD, Action(0, Kind.RECV_B, 0)), "a pair holds a forward"),
        (Action.pair(FORWARD, FORWARD), "a pair holds a forward"),
        (Action(-1, Kind.OVERLAP_F_B, None, (FORWARD, BACKWARD, BACKWARD)), "a pair holds a forward"),
        (Action.pair(FORWARD, Action(0, Kind.FULL_BACKWARD, 0, (FORWARD,))), "a pair holds a forward"),
        (Action(0, Kind.SEND_F, 0, (FORWARD, BACKWARD)), "nothing else holds actions"),
        (Action(0, Kind.UNSHARD, 1), "rank 0 lists 0UNSHARD1, but UNSHARD has no micro-batch"),
        (Action(0, Kind.RESHARD, 10**30), "RESHARD has no micro-batch"),
        (Action(0, Kind.SEND_F, 10**30), "there are micro-batches 0 to 0"),
        (Action(10**30, Kind.FORWARD, 0), "there are stages 0 to 0"),
        (Action(2**63, Kind.RECV_B, 0), "there are stages 0 to 0"),
        (Action.pair(FORWARD, Action(0, Kind.INPUT_GRAD, 2**64)), "there are micro-batches 0 to 0"),
        (Action.pair(FORWARD, Action(0, Kind.INPUT_GRAD)), "there are micro-batches 0 to 0"),
        (Action(0, "F", 0), "kind of 0F0 on rank 0: must be a Kind"),  # type: ignore[arg-type]
        (Action("0", Kind.FORWARD, 0), "stage of 0F0 on rank 0: must be a whole number"),  # type: ignore[arg-type]
        (Action(0, Kind.FORWARD, "0"), "micro-batch of 0F0 on rank 0: must be"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_action(engine: Engine, action: Action, message: str) -> None:
    costs = StageCosts.of(1, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with pytest.raises(InputError, match=message):
        simulate(Schedule("wrong", (0,), ((action,),), 1), costs, engine=engine)


def test_fewer_than_no_micro_batches(engine: Engine) -> None:
    costs = StageCosts.of(1, forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    with pytest.raises(InputError, match=r"^num_microbatches: must be 0 or more \(got -2\)"):
        simulate(Schedule("wrong", (0,), ((),), -2), costs, engine=engine)


def test_sums_beyond_64_bits_are_refused_and_others_exact(engine: Engine) -> None:
    row = tuple(Action(0, Kind.FORWARD, number) for number in range(1_000_000))
    huge = StageCosts.of(1, forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=2**40 - 1)
    # A thousand fit: each at the limit, and their sum is exact.
    assert simulate(Schedule("few", (0,), (row[:1000],), 1000), huge, engine=engine).peak_bytes == (
        1000 * (2**40 - 1),
    )
    with pytest.raises(InputError, match=r"^costs: sums over 2000000 actions of this time or size may not"):
        simulate(Schedule("many", (0,), (row, row), len(row)), huge, engine=engine)
