"""Small schedules in time slots, against what the notes on ZeroPP draw."""

from pathlib import Path

import pytest

from dtk.pipeline.action import Action
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import make_schedule
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate_tasks
from dtk.pipeline.simulate.result import StreamKind, Task
from dtk.pipeline.slots import draw_slots, draw_tasks

GOLDEN = Path(__file__).parent.parent / "timeline" / "golden" / "zeropp_slots.txt"


def simulated(schedule: Schedule, **costs: int) -> list[Task]:
    times = {"forward_ns": 1000, "input_grad_ns": 1000, "weight_grad_ns": 1000} | costs
    return simulate_tasks(schedule, StageCosts.of(schedule.num_stages, **times), engine="python")


def zeropp() -> list[Task]:
    return simulated(make_schedule("zeropp", num_ranks=4, num_chunks=2, num_microbatches=4, unit=4))


def drawn(tasks: list[Task], width: int = 1000) -> list[str]:
    text = draw_slots(tasks, width=width)
    assert text is not None
    return text.plain.splitlines()


def test_the_worked_example_comes_out_slot_by_slot() -> None:
    # The paper's B is torch's I.
    expected = GOLDEN.read_text(encoding="utf-8").replace("B", "I").splitlines()
    assert drawn(zeropp()) == [*expected, "27 slots of 1 µs"]


def test_it_is_drawn_where_it_fits_and_not_otherwise() -> None:
    longest = max(map(len, drawn(zeropp())))
    assert draw_slots(zeropp(), width=longest) is not None
    assert draw_slots(zeropp(), width=longest - 1) is None


@pytest.mark.parametrize("width", [200, 60])
def test_the_terminal_view_takes_slots_if_they_fit_and_columns_if_not(width: int) -> None:
    lines = draw_tasks(zeropp(), title="ZeroPP", width=width).plain.splitlines()
    assert lines[0] == "ZeroPP (simulated)"
    assert lines[1].startswith("r0 F00" if width == 200 else "rank 0 compute FFF")
    assert len(lines) == (6 if width == 200 else 8)
    assert all(len(line) <= width for line in lines)


def test_transfers_and_other_streams_leave_compute_as_it_is() -> None:
    tasks = zeropp()
    others = [Task(0, stream, Action.parse("0F0"), 0, 77, 1) for stream in StreamKind if stream != "compute"]
    assert drawn([*tasks, *others]) == drawn(tasks)


def test_what_takes_several_slots_goes_on_in_dashes() -> None:
    schedule = make_schedule("1f1b", num_ranks=2, num_chunks=1, num_microbatches=2)
    assert drawn(simulated(schedule, optimizer_ns=3000)) == [
        "r0 F00 F01 ... ... B00---- ... B01---- OPT--------",
        "r1 ... F00 B00---- F01 B01---- ... ... OPT--------",
        "12 slots of 1 µs",
    ]


def test_pairs_show_both_names() -> None:
    schedule = make_schedule("dualpipe-v", num_ranks=2, num_chunks=2, num_microbatches=6)
    assert any("+B" in line for line in drawn(simulated(schedule)))


def test_ten_and_more_microbatches_are_set_off_by_a_dot() -> None:
    schedule = make_schedule("gpipe", num_ranks=1, num_chunks=1, num_microbatches=11)
    row = drawn(simulated(schedule))[0]
    assert row.startswith("r0 F0.0- F0.1-")
    assert "F0.10 B0.0" in row


def test_actions_that_take_no_time_are_told() -> None:
    schedule = make_schedule("zb-h1", num_ranks=2, num_chunks=1, num_microbatches=2)
    assert drawn(simulated(schedule, weight_grad_ns=0))[-1].endswith(
        "slots of 1 µs; 4 actions that take no time are not shown"
    )


@pytest.mark.parametrize("tasks", [[], [Task(0, StreamKind.COMPUTE, Action.parse("0F0"), 0, 0)]])
def test_nothing_to_draw(tasks: list[Task]) -> None:
    assert draw_slots(tasks, width=100) is None
    assert draw_tasks(tasks, title="none", width=100).plain.endswith("nothing to draw")


def test_times_without_a_common_unit_are_too_wide() -> None:
    schedule = make_schedule("gpipe", num_ranks=2, num_chunks=1, num_microbatches=2)
    assert draw_slots(simulated(schedule, forward_ns=1001), width=200) is None


def test_each_slot_is_where_its_time_is() -> None:
    schedule = make_schedule("zeropp", num_ranks=3, num_chunks=2, num_microbatches=5, unit=2)
    tasks = simulated(schedule, input_grad_ns=2000)
    rows = drawn(tasks)[:-1]
    width = 4
    for task in tasks:
        cell = rows[task.rank][3 + task.start_ns // 1000 * width :][
            : (task.end_ns - task.start_ns) // 1000 * width - 1
        ]
        assert task.action is not None
        chunk = task.action.stage // 3
        assert cell.rstrip("-") == f"{task.action.kind}{chunk}{task.action.microbatch}"
    busy = sum((task.end_ns - task.start_ns) // 1000 for task in tasks)
    idle = sum(row.count("...") for row in rows)
    assert busy + idle == 3 * max(task.end_ns for task in tasks) // 1000
