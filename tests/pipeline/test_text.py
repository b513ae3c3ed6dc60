"""Schedules as text: round trips, and errors that name row and column."""

import pytest
from hypothesis import given

from dtk.errors import InputError
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.text import schedule_from_text, schedule_to_text
from tests.pipeline.generators.test_properties import schedules


@given(schedules())
def test_round_trip(schedule: Schedule) -> None:
    read = schedule_from_text(schedule_to_text(schedule), name=schedule.name)
    assert read == schedule


def test_form() -> None:
    text = '\ufeff0F0,,0F1,0UNSHARD,"(0F2;2B0)OVERLAP_F_B",\r\n,"",1F0,1RECV_F1, 1F1 , 3REDUCE_GRAD\r\n\r\n'
    schedule = schedule_from_text(text)
    assert schedule.rank_of_stage == (0, 1, 0, 1)
    assert schedule.num_microbatches == 3
    assert schedule_to_text(schedule) == (
        "0F0,0F1,0UNSHARD,(0F2;2B0)OVERLAP_F_B\n1F0,1RECV_F1,1F1,3REDUCE_GRAD\n"
    )


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("0F0,0B0\n1F0,1X0\n", "row 2, column 2", "not an action"),
        ("0F0,0B\n", "row 1, column 2", "needs a micro-batch"),
        ("0F0,,0F-1\n", "row 1, column 3", "not an action"),
        ("0F0,1B0\n1F0\n", "row 2, column 1", "stage 1 is on row 1 too (column 2)"),
        ("0F0\n2F0\n", "row 2, column 1", "no row has stage 1"),
        ("999999999F0\n", "row 1, column 1", "no row has stage 0"),
        ("0F0,0F99\n", "row 1, column 2", "micro-batch 99 in a schedule of 2 actions"),
        ("0F0\n\n1F0\n", "row 2", "holds no action"),
        ("0F0\n,,\n", "row 2", "holds no action"),
        ("", "schedule", "holds no row"),
        ("\n \n", "schedule", "holds no row"),
        ("0UNSHARD\n", "schedule", "holds no compute action"),
        ('0F0,"0B0\n', "row 1", "is no CSV"),
        ("0F0," + "9" * 200_000, "row 1", "is no CSV"),
        ("0F0\0,0B0", "row 1, column 1", "not an action"),
        ("0F0;0B0\n", "row 1, column 1", "not an action"),
    ],
)
def test_errors_name_the_place(text: str, field: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        schedule_from_text(text)
    assert caught.value.field == field
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
