"""Every named schedule passes, at any size, with and without what the lowering passes add."""

import time

import pytest
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


@pytest.mark.slow
def test_time_grows_linearly() -> None:
    """Sixteen times the actions take sixteen times as long, give or take; a quadratic step would take 256."""

    def seconds(num_microbatches: int) -> float:
        schedule = zeropp(32, 4, num_microbatches, unit=64)
        start = time.process_time()
        lowered = add_transfers(add_parameters(schedule))
        validate(lowered)
        validate(lowered, rendezvous=False)
        return time.process_time() - start

    small = min(seconds(16) for _ in range(3))
    assert seconds(256) < 64 * small
