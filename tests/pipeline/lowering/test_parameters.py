import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.pipeline.action import COMPUTE_KINDS, Kind
from dtk.pipeline.lowering.parameters import Reduce, add_parameters
from dtk.pipeline.lowering.transfers import add_transfers
from dtk.pipeline.schedule import Schedule
from tests.pipeline.executor import refusal
from tests.pipeline.listed import all_listed, from_text, overlapped_p2, runnable, zeropp_p4_v2_u4


def row_text(schedule: Schedule, rank: int = 0) -> str:
    return " ".join(map(str, schedule.actions[rank]))


def count(schedule: Schedule, kind: Kind) -> list[int]:
    return [sum(action.kind is kind for action in row) for row in schedule.actions]


def one_rank(text: str, num_stages: int, num_microbatches: int) -> Schedule:
    return from_text("one", (0,) * num_stages, num_microbatches, text)


VISITS = one_rank("0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1", 2, 2)


def test_a_visit_gathers_once_and_frees_after_its_last_use() -> None:
    assert row_text(add_parameters(VISITS)) == (
        "0UNSHARD 0F0 0F1 0RESHARD 1UNSHARD 1F0 1F1 1B0 1B1 1REDUCE_GRAD 1RESHARD 0UNSHARD 0B0 0B1 "
        "0REDUCE_GRAD 0RESHARD"
    )


def test_two_resident_chunks() -> None:
    assert row_text(add_parameters(VISITS, resident_chunks=2)) == (
        "0UNSHARD 0F0 0F1 1UNSHARD 1F0 1F1 1B0 1B1 1REDUCE_GRAD 1RESHARD 0B0 0B1 0REDUCE_GRAD 0RESHARD"
    )


@pytest.mark.parametrize(
    ("lookahead", "expected"),
    [
        (1, "0UNSHARD 0F0 1UNSHARD 0F1 1F0 1F1"),
        (2, "0UNSHARD 0F0 1UNSHARD 0F1 1F0 1F1"),  # before the first action stands its own gather alone
    ],
)
def test_lookahead_gathers_ahead_of_the_use(lookahead: int, expected: str) -> None:
    assert row_text(add_parameters(VISITS, resident_chunks=2, lookahead=lookahead)).startswith(expected)


def test_lookahead_without_a_free_place_changes_nothing() -> None:
    assert add_parameters(VISITS, lookahead=5) == add_parameters(VISITS)


def test_lookahead_waits_for_the_place_of_another_stage() -> None:
    schedule = one_rank("0F0 1F0 2F0 2B0 1B0 0B0", 3, 1)
    assert row_text(add_parameters(schedule, resident_chunks=2, lookahead=3)) == (
        "0UNSHARD 0F0 0RESHARD 1UNSHARD 2UNSHARD 1F0 2F0 2B0 2REDUCE_GRAD 2RESHARD 0UNSHARD 1B0 1REDUCE_GRAD "
        "1RESHARD 0B0 0REDUCE_GRAD 0RESHARD"
    )


def test_weight_gradients_need_parameters_on_request() -> None:
    schedule = one_rank("0F0 1F0 1I0 0I0 0W0 1W0", 2, 1)
    gathers = [
        count(add_parameters(schedule, weight_grad_needs_parameters=needs), Kind.UNSHARD)[0]
        for needs in (False, True)
    ]
    assert gathers == [3, 4]


@pytest.mark.parametrize(
    ("reduce", "unit", "expected"),
    [
        ("microbatch", None, "0B0 R 0B1 R 0B2 R 0B3 R 0B4 R"),
        ("unit", 2, "0B0 0B1 R 0B2 0B3 R 0B4 R"),
        ("unit", None, "0B0 0B1 0B2 0B3 0B4 R"),
        ("end", 2, "0B0 0B1 0B2 0B3 0B4 R"),
    ],
)
def test_when_gradients_are_reduced(reduce: Reduce, unit: int | None, expected: str) -> None:
    schedule = one_rank("0F0 0F1 0F2 0F3 0F4 0B0 0B1 0B2 0B3 0B4", 1, 5)
    text = row_text(add_parameters(schedule, reduce=reduce, unit=unit)).replace("0REDUCE_GRAD", "R")
    assert text == f"0UNSHARD 0F0 0F1 0F2 0F3 0F4 {expected} 0RESHARD"


def test_the_unit_is_the_schedules_own() -> None:
    schedule = one_rank("0F0 0F1 0B0 0B1", 1, 2)
    assert count(add_parameters(schedule), Kind.REDUCE_GRAD) == [1]
    for name in ("unit", "group_size"):
        schedule.settings.clear()
        schedule.settings[name] = 1
        assert count(add_parameters(schedule), Kind.REDUCE_GRAD) == [2]


def test_too_few_gradient_buffers_reduce_more_often() -> None:
    schedule = one_rank("0F0 1F0 0F1 1F1 1I0 1I1 0I0 0I1 1W0 0W0 1W1 0W1", 2, 2)
    reductions = [
        count(add_parameters(schedule, reduce="end", gradient_buffers=buffers), Kind.REDUCE_GRAD)[0]
        for buffers in (1, 2, None)
    ]
    assert reductions == [4, 2, 2]


def test_an_overlapped_pair_needs_both_its_stages() -> None:
    schedule = one_rank("0F0 1F0 (0F1;1B0)OVERLAP_F_B 1F1 0B0 1B1 0B1", 2, 2)
    with pytest.raises(InputError, match="needs 2 stages gathered at once") as error:
        add_parameters(schedule)
    assert (error.value.field, error.value.value) == ("resident_chunks", 1)
    assert "0UNSHARD 1UNSHARD (0F1;1B0)OVERLAP_F_B" in row_text(
        add_parameters(one_rank("(0F1;1B0)OVERLAP_F_B", 2, 2), resident_chunks=2)
    )


def test_a_pair_on_one_stage_is_one_place() -> None:
    assert count(add_parameters(overlapped_p2()), Kind.UNSHARD) == [1, 1]


@given(
    st.integers(0, 10**9),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from(["unit", "microbatch", "end"]),
    st.one_of(st.none(), st.integers(1, 3)),
    st.booleans(),
)
def test_any_schedule_runs_with_its_parameters(
    seed: int, resident: int, lookahead: int, reduce: Reduce, buffers: int | None, needs: bool
) -> None:
    schedule = runnable(seed, pairs=resident > 1)
    lowered = add_parameters(
        schedule,
        resident_chunks=resident,
        lookahead=lookahead,
        reduce=reduce,
        unit=random.Random(seed).randint(1, 4),
        gradient_buffers=buffers,
        weight_grad_needs_parameters=needs,
    )
    assert lowered.compute_only() == schedule
    assert refusal(lowered, resident=resident) is None
    assert refusal(add_transfers(lowered), resident=resident) is None
    late = add_parameters(schedule, resident_chunks=resident, weight_grad_needs_parameters=needs)
    assert count(lowered, Kind.UNSHARD) == count(late, Kind.UNSHARD)
    for row in lowered.actions:
        check_row(row, lookahead, buffers, needs)


def check_row(row: tuple, lookahead: int, buffers: int | None, needs: bool) -> None:
    """Each gather serves the next use of its stage, at most `lookahead` actions further on."""
    dirty: set[int] = set()
    for index, action in enumerate(row):
        if action.kind is Kind.UNSHARD:
            following = [each for each in row[index:] if each.kind in COMPUTE_KINDS]
            used = [
                any(
                    part.stage == action.stage and (needs or part.kind is not Kind.WEIGHT_GRAD)
                    for part in each.parts
                )
                for each in following
            ]
            assert used.index(True) <= lookahead
        elif action.kind is Kind.REDUCE_GRAD:
            dirty.remove(action.stage)
        else:
            backward = (Kind.WEIGHT_GRAD, Kind.FULL_BACKWARD)
            dirty.update(part.stage for part in action.parts if part.kind in backward)
            assert buffers is None or len(dirty) <= buffers


@pytest.mark.parametrize("schedule", all_listed(), ids=lambda schedule: schedule.name)
def test_one_gather_comes_before_the_first_action(schedule: Schedule) -> None:
    for row in add_parameters(schedule, resident_chunks=3, lookahead=9).actions:
        assert [action.kind for action in row[:2]] == [Kind.UNSHARD, Kind.FORWARD]


def test_zeropp_gathers_twice_per_chunk_but_once_for_the_last() -> None:
    lowered = add_parameters(zeropp_p4_v2_u4())
    assert count(lowered, Kind.UNSHARD) == [3] * 4  # 2V-1
    assert count(lowered, Kind.REDUCE_GRAD) == [2] * 4


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"resident_chunks": 0}, "resident_chunks"),
        ({"lookahead": -1}, "lookahead"),
        ({"gradient_buffers": 0}, "gradient_buffers"),
        ({"unit": 0}, "unit"),
        ({"reduce": "never"}, "reduce"),
    ],
)
def test_settings_out_of_range(settings: dict, field: str) -> None:
    with pytest.raises(InputError) as error:
        add_parameters(VISITS, **settings)
    assert error.value.field == field


@pytest.mark.parametrize("text", ["0UNSHARD 0F0", "0F0 0SEND_F0"])
def test_other_actions_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="compute actions alone") as error:
        add_parameters(from_text("x", (0, 1), 1, text + "\n1F0"))
    assert error.value.field == "rank 0"
