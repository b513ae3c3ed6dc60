"""What every named schedule must have, whatever the sizes: each action once, in an order that can run."""

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.action import Kind
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.schedule import Schedule
from tests.pipeline.generators.timeline import execute


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    name = draw(st.sampled_from(list(SCHEDULES)))
    generator = SCHEDULES[name]
    num_ranks = draw(st.integers(1, 9))
    split = draw(st.booleans())
    options: dict[str, Any] = {
        "unit": draw(st.none() | st.integers(1, 20)),
        "group_size": draw(st.none() | st.integers(num_ranks, 3 * num_ranks)),
        "weight_order": draw(st.sampled_from(["lifo", "fifo"])) if split else "lifo",
        "split": split,
        "reverse_backward": draw(st.booleans()),
    }
    return make_schedule(
        name,
        num_ranks=num_ranks,
        num_chunks=draw(st.integers(generator.min_chunks, generator.max_chunks or 4)),
        num_microbatches=draw(st.integers(1, 30)),
        **{option: value for option, value in options.items() if option in generator.options},
    )


@given(schedules())
def test_every_action_once_on_its_rank_and_in_order(schedule: Schedule) -> None:
    seen: dict[tuple[int, int | None], list[Kind]] = defaultdict(list)
    for rank, row in enumerate(schedule.actions):
        for action in row:
            for part in action.parts:
                assert schedule.rank_of_stage[part.stage] == rank
                seen[part.stage, part.microbatch].append(part.kind)
    stages, microbatches = range(schedule.num_stages), range(schedule.num_microbatches)
    assert set(seen) == {(stage, microbatch) for stage in stages for microbatch in microbatches}
    split = [Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD]
    assert all(kinds in (split, [Kind.FORWARD, Kind.FULL_BACKWARD]) for kinds in seen.values())


@given(schedules())
def test_forwards_of_a_stage_run_in_ascending_order(schedule: Schedule) -> None:
    """torch gathers losses in the order of the last stage's forwards."""
    seen: dict[int, list[int | None]] = defaultdict(list)
    for row in schedule.actions:
        for part in (part for action in row for part in action.parts):
            if part.kind is Kind.FORWARD:
                seen[part.stage].append(part.microbatch)
    assert all(order == list(range(schedule.num_microbatches)) for order in seen.values())


@given(schedules())
def test_runs_to_its_end(schedule: Schedule) -> None:
    assert min(execute(schedule).idle) >= 0
