import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.pipeline.action import TRANSFER_KINDS, Action, Kind
from dtk.pipeline.lowering.transfers import Receive, add_transfers
from dtk.pipeline.schedule import Schedule
from tests.pipeline.executor import refusal
from tests.pipeline.listed import all_listed, from_text, one_f_one_b_p3, runnable, v_shape_p2

ORDERS: tuple[Receive, ...] = ("late", "early")


PRODUCERS = {Kind.SEND_F: {Kind.FORWARD}, Kind.SEND_B: {Kind.FULL_BACKWARD, Kind.INPUT_GRAD}}
LOWERED_1F1B = """
0F0 0SEND_F0 0F1 0SEND_F1 0F2 0RECV_B0 0SEND_F2 0B0 0F3 0RECV_B1 0SEND_F3 0B1 0RECV_B2 0B2 0RECV_B3 0B3
1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1RECV_B0 1SEND_F1 1B0 1SEND_B0 1RECV_F2 1F2 1RECV_B1 1SEND_F2 1B1 \
1SEND_B1 1RECV_F3 1F3 1RECV_B2 1SEND_F3 1B2 1SEND_B2 1RECV_B3 1B3 1SEND_B3
2RECV_F0 2F0 2B0 2SEND_B0 2RECV_F1 2F1 2B1 2SEND_B1 2RECV_F2 2F2 2B2 2SEND_B2 2RECV_F3 2F3 2B3 2SEND_B3
"""


def check(schedule: Schedule, receive: Receive) -> Schedule:
    lowered = add_transfers(schedule, receive=receive)
    assert lowered.compute_only() == schedule.compute_only()
    for rendezvous in (True, False):
        assert refusal(lowered, rendezvous=rendezvous) is None
    for row in lowered.actions:
        computed: Action | None = None
        for action in row:
            if action.kind not in TRANSFER_KINDS:
                computed = action
            elif action.kind in PRODUCERS:  # a result is sent before anything else is computed
                assert computed is not None
                kinds = {part.kind for part in computed.parts if part[::2] == action[::2]}
                assert kinds & PRODUCERS[action.kind]
    return lowered


@pytest.mark.parametrize("receive", ORDERS)
@pytest.mark.parametrize("schedule", all_listed(), ids=lambda schedule: schedule.name)
def test_hand_written_schedules(schedule: Schedule, receive: Receive) -> None:
    check(schedule, receive)


@given(st.integers(0, 10**9), st.sampled_from(ORDERS))
def test_any_schedule_that_runs_also_runs_with_rendezvous(seed: int, receive: Receive) -> None:
    check(runnable(seed), receive)


def test_lower_rank_receives_first_where_two_send_to_each_other() -> None:
    rows = add_transfers(one_f_one_b_p3()).actions
    assert [" ".join(map(str, row)) for row in rows] == LOWERED_1F1B.strip().splitlines()


def test_no_transfer_between_stages_of_one_rank() -> None:
    kinds = {str(action) for row in add_transfers(v_shape_p2()).actions for action in row}
    assert "0SEND_F0" in kinds
    assert "1SEND_F0" not in kinds
    assert "2SEND_B0" not in kinds


def test_a_receive_waits_until_its_use() -> None:
    schedule = from_text("wait", (0, 1), 1, "0F0 0B0\n1UNSHARD 1F0 1B0 1RESHARD 1REDUCE_GRAD")
    late, early = (add_transfers(schedule, receive=order).actions[1] for order in ORDERS)
    assert list(map(str, late))[:3] == ["1UNSHARD", "1RECV_F0", "1F0"]
    assert "1RECV_F0" in list(map(str, early))[:2]


@pytest.mark.parametrize("receive", ORDERS)
def test_a_circular_wait_is_refused(receive: Receive) -> None:
    schedule = from_text("circle", (0, 1), 2, "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
    with pytest.raises(InputError, match="wait for each other") as error:
        add_transfers(schedule, receive=receive)
    assert error.value.field == "rank 0"
    assert error.value.value == "0B0"


def test_transfers_are_added_once() -> None:
    with pytest.raises(InputError, match="listed already"):
        add_transfers(add_transfers(one_f_one_b_p3()))


def test_unknown_order() -> None:
    with pytest.raises(InputError, match="late or early"):
        add_transfers(one_f_one_b_p3(), receive="now")  # type: ignore[arg-type]


@given(st.integers(0, 10**6))
def test_early_is_the_order_of_torch(seed: int) -> None:
    # torch is always installed: where its private names move, this fails and does not skip.
    from torch.distributed.pipelining import schedules

    schedule = runnable(seed)
    lists = {
        rank: [schedules._Action.from_str(str(action)) for action in row]
        for rank, row in enumerate(schedule.actions)
    }
    theirs = schedules._add_send_recv(lists, schedule.rank_of_stage.__getitem__, schedule.num_stages)
    ours = add_transfers(schedule, receive="early").actions
    assert [list(map(str, row)) for row in ours] == [list(map(str, theirs[rank])) for rank in sorted(theirs)]


@pytest.mark.parametrize(
    ("rows", "rank_of_stage", "message"),
    [
        ("0F0 0F0 0B0|1F0 1B0", (0, 1), "lists 0F0 a second time"),
        ("0F0 0B0|1F0 1B0 3B0", (0, 1), "there are stages 0 to 1"),
        ("0F0 0B0|1F0 1B0 1B0", (0, 1), "a second backward"),
        ("0F0 0B0|1F0 1B0", (5, 1), "stage 0 must be on a rank from 0 to 1"),
    ],
)
def test_nonsense_is_refused(rows: str, rank_of_stage: tuple[int, ...], message: str) -> None:
    actions = tuple(tuple(map(Action.parse, row.split())) for row in rows.split("|"))
    with pytest.raises(InputError, match=message):
        add_transfers(Schedule("wrong", rank_of_stage, actions, 1))
