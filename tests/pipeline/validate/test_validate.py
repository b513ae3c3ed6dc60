import re

import pytest

from dtk.errors import InputError
from dtk.pipeline.action import Action, Kind
from dtk.pipeline.lowering import add_parameters, add_transfers
from dtk.pipeline.schedule import Schedule, loop_placement
from dtk.pipeline.validate import validate
from tests.pipeline.listed import all_listed, from_text, one_f_one_b_p3, zeropp_p4_v2_u4

TWO = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"
SPLIT = "0F0 0I0 0W0\n1F0 1I0 1W0"
SENDS = "0F0 0SEND_F0 0RECV_B0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0"
GATHERED = "0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD\n1UNSHARD 1F0 1B0 1REDUCE_GRAD 1RESHARD"


def two_ranks(text: str) -> Schedule:
    num_microbatches = 1 + max(int(each) for each in re.findall(r"F(\d+)", text))
    return from_text("two", (0, 1), num_microbatches, text)


@pytest.mark.parametrize("schedule", all_listed(), ids=lambda schedule: schedule.name)
def test_good_schedules(schedule: Schedule) -> None:
    validate(schedule)
    validate(add_transfers(schedule))
    lowered = add_parameters(schedule, resident_chunks=2, weight_grad_needs_parameters=True)
    validate(lowered, resident_chunks=2, weight_grad_needs_parameters=True)


@pytest.mark.parametrize(
    ("text", "changed", "expected"),
    [
        # Missing, doubled, misplaced.
        (TWO, ("0B1", ""), "rank 0: 0B1 (or 0I1 and 0W1) is missing"),
        (TWO, ("1F1", ""), "rank 1: 1F1 is missing"),
        (SPLIT, ("0W0", ""), "rank 0: 0W0 is missing"),
        (TWO, ("0B0", "0B0 0B0"), "rank 0, position 3: repeats 0B0, which stands at position 2 already"),
        (SPLIT, ("0W0", "0B0"), "rank 0, position 2: repeats 0I0, which stands at position 1 already"),
        (TWO, ("0B0", "0B0 0W0"), "position 3: the weight gradient is part of 0B0 at position 2 (got '0W0')"),
        (TWO, ("1B0 1F1", "1F1 1B1 1B0"), "rank 1, position 4: repeats 1B1, which stands at position 2"),
        (TWO, ("0B1", "0B1 1F0"), "position 4: stands on rank 0, but rank 1 holds stage 1 (got '1F0')"),
        (TWO, ("0B1", "0B1 2F0"), "rank 0, position 4: there is no stage 2: stages are 0 to 1"),
        (TWO, ("0B1", "0B1 0B7"), "rank 0, position 4: there is no micro-batch 7: micro-batches are 0 to 1"),
        # Order on one rank.
        (TWO, ("1F0 1B0", "1B0 1F0"), "rank 1, position 0: waits for 1F0, which comes later, at position 1"),
        (SPLIT, ("1I0 1W0", "1W0 1I0"), "position 1: waits for 1I0, which comes later, at position 2"),
        (TWO, ("1F0 1B0", "(1F0;1B0)OVERLAP_F_B"), "waits for 1F0, which runs in the same pair"),
        # Transfers.
        (SENDS, ("0SEND_F0", ""), "rank 0: 0SEND_F0 is missing, though rank 1 lists 1RECV_F0"),
        (SENDS, ("0RECV_B0", ""), "rank 0: 0RECV_B0 is missing, though rank 1 lists 1SEND_B0"),
        (SENDS, ("0SEND_F0", "0SEND_F0 0SEND_F0"), "rank 0, position 2: stands at position 1 already"),
        (SENDS, ("0F0 0SEND_F0", "0SEND_F0 0F0"), "position 0: sends what 0F0 computes only at position 1"),
        (SENDS, ("1RECV_F0 1F0", "1F0 1RECV_F0"), "position 0: waits for 1RECV_F0, which comes later"),
        (SENDS, ("1SEND_B0", "1SEND_B0 1SEND_F0"), "position 4: stage 1 has no neighbour on that side"),
        # Residency and reductions.
        (GATHERED, ("0UNSHARD ", ""), "position 0: waits for 0UNSHARD: the parameters of stage 0 are not"),
        (
            GATHERED,
            ("1F0 1B0", "1F0 1RESHARD 1B0"),
            "the parameters of stage 1 are not gathered since 1RESHARD at position 2 (got '1B0')",
        ),
        (GATHERED, ("0F0", "0F0 0UNSHARD"), "position 2: stage 0 is gathered already, since position 0"),
        (GATHERED, (" 0RESHARD", " 0RESHARD 0RESHARD"), "rank 0, position 5: stage 0 is not gathered"),
        (GATHERED, (" 0RESHARD", ""), "rank 0, position 0: stage 0 is never freed"),
        (GATHERED, (" 0REDUCE_GRAD", ""), "rank 0: 0REDUCE_GRAD is missing after 0B0 at position 2"),
        (GATHERED, ("0B0", "0REDUCE_GRAD 0B0"), "stage 0 has no gradients that are not reduced already"),
    ],
)
def test_one_clear_line(text: str, changed: tuple[str, str], expected: str) -> None:
    validate(two_ranks(text))
    broken = text.replace(*changed)
    assert broken != text
    schedule = two_ranks(broken)
    schedule = Schedule("x", schedule.rank_of_stage, schedule.actions, two_ranks(text).num_microbatches)
    with pytest.raises(InputError) as error:
        validate(schedule)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def refusal_of(schedule: Schedule, **settings: bool | int) -> str:
    with pytest.raises(InputError) as error:
        validate(schedule, **settings)  # type: ignore[arg-type]
    return str(error.value)


def test_circle_of_computes_names_who_waits_for_whom() -> None:
    assert refusal_of(two_ranks("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")) == (
        "rank 0, position 1: deadlock: rank 0 stands at 0B0 (position 1) and waits for 1B0 of rank 1; rank 1 "
        "stands at 1F1 (position 1) and waits for 0F1 of rank 0 (got '0B0')"
    )


BOTH_SEND = """
0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1
1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1
"""


def test_both_ranks_send_first() -> None:
    schedule = two_ranks(BOTH_SEND)
    validate(schedule, rendezvous=False)
    assert refusal_of(schedule) == (
        "rank 0, position 3: deadlock: rank 0 stands at 0SEND_F1 (position 3) and waits for 1RECV_F1 of rank "
        "1; rank 1 stands at 1SEND_B0 (position 3) and waits for 0RECV_B0 of rank 0 (got '0SEND_F1'); one of "
        "two ranks that send to each other has to receive first"
    )
    validate(two_ranks(BOTH_SEND.replace("0SEND_F1 0RECV_B0", "0RECV_B0 0SEND_F1")))


def test_a_receive_before_its_send_can_come_blocks_without_rendezvous_too() -> None:
    schedule = two_ranks("0RECV_B0 0F0 0SEND_F0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0")
    for rendezvous in (True, False):
        assert "rank 0 stands at 0RECV_B0 (position 0) and waits for 1SEND_B0 of rank 1" in refusal_of(
            schedule, rendezvous=rendezvous
        )


def test_messages_between_two_ranks_keep_their_order() -> None:
    text = SENDS.replace("0F0 0SEND_F0", "0F0 0SEND_F0 0F1 0SEND_F1").replace("0B0", "0B0 0RECV_B1 0B1")
    text = text.replace("1RECV_F0 1F0", "1RECV_F1 1RECV_F0 1F0 1F1").replace(
        "1SEND_B0", "1SEND_B0 1B1 1SEND_B1"
    )
    assert refusal_of(two_ranks(text), rendezvous=False) == (
        "rank 1, position 0: receives out of order: rank 0 sends 0SEND_F0 at this place of its messages (got "
        "'1RECV_F1')"
    )


def test_a_long_circle_is_cut() -> None:
    ranks = 20
    rows = [f"{ranks + rank}F0 {rank}F0 {ranks + rank}B0 {rank}B0" for rank in range(ranks)]
    message = refusal_of(from_text("ring", loop_placement(ranks, 2), 1, "\n".join(rows)))
    assert message.startswith(
        "rank 0, position 0: deadlock: rank 0 stands at 20F0 (position 0) and waits for 19F0 of"
    )
    assert message.endswith("and so on, 20 ranks in a circle (got '20F0')")
    assert len(message) < 600


@pytest.mark.parametrize(
    ("rank_of_stage", "expected"),
    [
        ((0, 2), "rank of stage 1: the schedule lists 2 ranks and has none of this number (got 2)"),
        ((0, -1), "rank of stage 1: the schedule lists 2 ranks"),
        ((0, 0), "rank 1: holds no stage"),
        ((), "rank 0: holds no stage"),
        ((1, 0), "rank 0, position 0: stands on rank 0, but rank 1 holds stage 0 (got '0F0')"),
        ((0, 1, 1), "rank 1: 2F0 is missing"),
    ],
)
def test_the_map_from_stages_to_ranks(rank_of_stage: tuple[int, ...], expected: str) -> None:
    schedule = Schedule("map", rank_of_stage, two_ranks(TWO).actions, 2)
    assert refusal_of(schedule).startswith(expected)


def test_sizes() -> None:
    assert refusal_of(Schedule("none", (), (), 1)) == "schedule: lists no rank (got 'none')"
    assert refusal_of(Schedule("none", (0,), ((),), 0)).startswith("num_microbatches: must be 1 or more")
    assert refusal_of(Schedule("many", (0,), ((),), 10**15)) == "rank 0: 0F0 is missing"


def test_a_transfer_within_a_rank_is_refused() -> None:
    schedule = from_text("v", (0, 1, 1), 1, "0F0 0B0\n1F0 1SEND_F0 2RECV_F0 2F0 2B0 1B0")
    assert refusal_of(schedule).startswith(
        "rank 1, position 1: stages 1 and 2 are both on rank 1: nothing is transferred (got '1SEND_F0')"
    )


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action(0, Kind.FORWARD), "F needs a micro-batch"),
        (Action(0, Kind.UNSHARD, 0), "UNSHARD has no micro-batch"),
        (Action(-1, Kind.FORWARD, 0), "there is no stage -1"),
        (Action(-1, Kind.OVERLAP_F_B), "an overlapped pair holds a forward and then a backward"),
        (Action.pair(Action(0, Kind.FORWARD, 0), Action(0, Kind.FORWARD, 1)), "an overlapped pair holds"),
    ],
)
def test_malformed_actions(action: Action, expected: str) -> None:
    assert expected in refusal_of(Schedule("bad", (0,), ((action,),), 2))


def test_too_many_resident_chunks() -> None:
    lowered = add_parameters(zeropp_p4_v2_u4(), resident_chunks=2)
    validate(lowered, resident_chunks=2)
    assert "more than 1 resident chunks: stages 0 are gathered already (got '4UNSHARD')" in refusal_of(
        lowered, resident_chunks=1
    )


def test_weight_gradients_may_need_parameters() -> None:
    lowered = add_parameters(zeropp_p4_v2_u4())
    validate(lowered)
    assert "waits for 4UNSHARD: the parameters of stage 4 are not gathered since 4RESHARD" in refusal_of(
        lowered, weight_grad_needs_parameters=True
    )


def test_sends_right_after_and_receives_right_before_need_buffers() -> None:
    """The naive order blocks under rendezvous; the lowering pass avoids it."""
    schedule = one_f_one_b_p3()
    validate(add_transfers(schedule))
    rows = []
    for rank, row in enumerate(schedule.actions):
        words = []
        for action in row:
            forward = action.kind is Kind.FORWARD
            if (rank > 0) if forward else (rank < 2):
                words.append(f"{rank}RECV_{action.kind}{action.microbatch}")
            words.append(str(action))
            if (rank < 2) if forward else (rank > 0):
                words.append(f"{rank}SEND_{action.kind}{action.microbatch}")
        rows.append(" ".join(words))
    naive = from_text("naive", (0, 1, 2), 4, "\n".join(rows))
    validate(naive, rendezvous=False)
    assert "deadlock" in refusal_of(naive)
