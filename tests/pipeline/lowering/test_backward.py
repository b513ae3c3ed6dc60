import pytest

from dtk.pipeline.lowering.backward import merge_backward, split_backward
from dtk.pipeline.schedule import Schedule
from tests.pipeline.executor import refusal
from tests.pipeline.listed import all_listed, from_text


def words(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, row)) for row in schedule.actions]


def test_only_adjacent_halves_of_one_backward_are_joined() -> None:
    text = "0F0 0F1 0F2 0F3 0I0 0W0 0I1 0I2 0W1 0W2 0I3 0REDUCE_GRAD 0W3"
    schedule = from_text("one", (0,), 4, text)
    assert words(merge_backward(schedule)) == ["0F0 0F1 0F2 0F3 0B0 0I1 0I2 0W1 0W2 0I3 0REDUCE_GRAD 0W3"]


def test_halves_of_two_stages_stay_apart() -> None:
    schedule = from_text("two", (0, 0), 1, "0F0 1F0 1I0 0I0 1W0 0W0")
    assert merge_backward(schedule) == schedule


def test_a_trailing_input_gradient_is_kept() -> None:
    assert words(merge_backward(from_text("cut", (0,), 1, "0F0 0I0"))) == ["0F0 0I0"]


@pytest.mark.parametrize("schedule", all_listed(), ids=lambda schedule: schedule.name)
def test_splitting_undoes_joining(schedule: Schedule) -> None:
    split = split_backward(schedule)
    assert split_backward(merge_backward(split)) == split
    assert refusal(split) is None
    assert refusal(merge_backward(split)) is None


def test_pairs_are_left_alone() -> None:
    schedule = from_text("pair", (0,), 2, "0F0 (0F1;0B0)OVERLAP_F_B 0B1")
    assert words(split_backward(schedule)) == ["0F0 (0F1;0B0)OVERLAP_F_B 0I1 0W1"]
