"""Every named schedule passes, at any size, with and without what the lowering passes add."""

import sys
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.generators.zeropp import zeropp
from dtk.pipeline.lowering import add_parameters, add_transfers, merge_backward, split_backward
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.validate import validate
from tests.pipeline.generators.test_properties import schedules


@given(schedules(), st.integers(2, 4), st.integers(0, 3), st.sampled_from(["late", "early"]))
def test_named_schedules_pass(schedule: Schedule, resident: int, lookahead: int, receive: str) -> None:
    for each in (schedule, merge_backward(schedule), split_backward(schedule)):
        lowered = add_parameters(each, resident_chunks=resident, lookahead=lookahead)
        validate(each)
        validate(lowered, resident_chunks=resident)
        validate(add_transfers(lowered, receive=receive), resident_chunks=resident)  # type: ignore[arg-type]


def test_work_grows_linearly() -> None:
    """Four times the actions execute about four times the lines of Python; a quadratic step would take 16."""

    def lines_executed(num_microbatches: int) -> int:
        schedule = zeropp(4, 2, num_microbatches, unit=8)
        count = 0

        def counting(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal count
            count += event == "line"
            return counting

        before = sys.gettrace()
        sys.settrace(counting)
        try:
            lowered = add_transfers(add_parameters(schedule))
            validate(lowered)
            validate(lowered, rendezvous=False)
        finally:
            sys.settrace(before)
        return count

    few, many = lines_executed(16), lines_executed(64)
    assert 3 * few < many < 5 * few
