"""Making schedules by name, and what is refused."""

from typing import Any

import pytest

from dtk.errors import InputError
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.schedule import loop_placement, v_placement

NAMES = ["gpipe", "1f1b", "interleaved", "bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "zeropp"]


def _make(name: str = "zeropp", **changed: Any) -> Any:
    sizes = {"num_ranks": 4, "num_chunks": SCHEDULES[name].min_chunks if name in SCHEDULES else 1}
    return make_schedule(name, **{**sizes, "num_microbatches": 8, **changed})


def test_names() -> None:
    assert list(SCHEDULES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_schedules_carry_their_name_and_placement(name: str) -> None:
    schedule = _make(name)
    v_shaped = name in ("zb-v", "dualpipe-v")
    chunks = SCHEDULES[name].min_chunks
    assert schedule.name == name
    assert schedule.rank_of_stage == (v_placement if v_shaped else loop_placement)(4, chunks)
    assert set(schedule.settings) == SCHEDULES[name].options


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["num_ranks", "num_chunks", "num_microbatches"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True])
def test_sizes_are_whole_and_positive(name: str, field: str, value: object) -> None:
    with pytest.raises(InputError, match=r"whole number, 1 or more") as caught:
        _make(name, **{field: value})
    assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.parametrize(
    ("name", "chunks", "wanted"),
    [
        ("gpipe", 2, "exactly 1 chunk "),
        ("1f1b", 3, "exactly 1 chunk "),
        ("zb-h2", 2, "exactly 1 chunk "),
        ("zb-v", 1, "exactly 2 chunks"),
        ("zb-v", 4, "exactly 2 chunks"),
        ("dualpipe-v", 3, "exactly 2 chunks"),
        ("interleaved", 1, "2 or more chunks"),
    ],
)
def test_chunks_must_fit(name: str, chunks: int, wanted: str) -> None:
    with pytest.raises(InputError, match=f"{name} has {wanted}") as caught:
        _make(name, num_chunks=chunks)
    assert caught.value.field == "num_chunks"
    assert "zeropp" in (caught.value.hint or "")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("option", "value"),
    [("unit", 4), ("group_size", 4), ("weight_order", "fifo"), ("split", False), ("reverse_backward", True)],
)
def test_options_of_other_schedules_are_refused(name: str, option: str, value: object) -> None:
    if option in SCHEDULES[name].options:
        assert _make(name, **{option: value}).settings[option] == value
        return
    with pytest.raises(InputError, match="no such option") as caught:
        _make(name, **{option: value})
    assert (caught.value.field, caught.value.value) == (option, value)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"unit": 0}, "unit"),
        ({"unit": -1}, "unit"),
        ({"weight_order": "random"}, "weight_order"),
        ({"weight_order": "fifo", "split": False}, "weight_order"),
        ({"name": "interleaved", "group_size": 0}, "group_size"),
        ({"name": "interleaved", "group_size": 3}, "group_size"),
        ({"name": "optimum"}, "schedule"),
        ({"num_microbatches": 10**9}, "num_microbatches"),
    ],
)
def test_values_out_of_range(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        _make(**changed)
    assert caught.value.field == field
