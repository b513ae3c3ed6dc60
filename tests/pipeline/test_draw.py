"""A simulated schedule as a timeline: names, tracks, arrows, memory; valid in every viewer."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk.pipeline.action import Action
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.draw import CATEGORIES, timeline_of
from dtk.pipeline.generators.registry import make_schedule
from dtk.pipeline.lowering import add_parameters
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate_memory, simulate_tasks
from dtk.pipeline.simulate.result import MemoryKind, MemoryStep, StreamKind, Task
from dtk.timeline import Timeline
from dtk.timeline.perfetto import encode_trace
from dtk.timeline.perfetto_check import check_trace

NAMES = ["gpipe", "1f1b", "interleaved", "bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "zeropp"]
TWO_CHUNKS = {"interleaved", "bfs", "zb-v", "dualpipe-v", "zeropp"}


def schedule_of(name: str, num_ranks: int = 2, num_microbatches: int = 6) -> Schedule:
    num_chunks = 2 if name in TWO_CHUNKS else 1
    return make_schedule(name, num_ranks=num_ranks, num_chunks=num_chunks, num_microbatches=num_microbatches)


def timeline(schedule: Schedule, **costs: Any) -> Timeline:
    times = {"forward_ns": 1001, "input_grad_ns": 1502, "weight_grad_ns": 703} | costs
    prices = StageCosts.of(schedule.num_stages, **times)
    tasks = simulate_tasks(schedule, prices, engine="python")
    return timeline_of(tasks, title="test", memory=simulate_memory(schedule, prices, engine="python"))


@given(st.sampled_from(NAMES), st.lists(st.integers(0, 3000), min_size=8, max_size=8))
@settings(max_examples=60, deadline=None)
def test_schedules_at_any_cost_are_valid_traces(name: str, times: Sequence[int]) -> None:
    forward, backward, weight, activation, gradient, unshard, reduce, optimizer = times
    schedule = add_parameters(schedule_of(name), resident_chunks=2)
    found = timeline(
        schedule,
        forward_ns=forward,
        input_grad_ns=backward,
        weight_grad_ns=weight,
        activation_transfer_ns=activation,
        gradient_transfer_ns=gradient,
        unshard_ns=unshard,
        reduce_grad_ns=reduce,
        optimizer_ns=optimizer,
        activation_bytes=100,
        parameter_bytes=50,
    )
    trace = encode_trace(found)
    assert check_trace(trace.content) == []
    assert trace.left_out == ()


def test_spans_are_named_by_kind_stage_and_microbatch() -> None:
    found = timeline(schedule_of("zb-v"), activation_transfer_ns=5)
    computed = {span.name: span for span in found.spans if span.track.thread == "compute"}
    assert {"F0.0", "I3.5", "W2.1"} <= set(computed)
    assert computed["F3.2"].args == {"stage": 3, "chunk": 1, "microbatch": 2}
    assert computed["F3.2"].category == "F"
    (sent,) = (span for span in found.spans if span.name == "F0.2" and span.track.thread == "send to rank 1")
    assert sent.category == "transfer"
    assert sent.end_ns - sent.start_ns == 5


def test_a_pair_is_one_span_with_both_names() -> None:
    found = timeline(schedule_of("dualpipe-v"))
    pair = next(span for span in found.spans if span.category == "F+B")
    assert "+" in pair.name
    assert Action.parse(str(pair.args["action"])).sub_actions
    assert pair.end_ns - pair.start_ns == 1001 + 1502 + 703


def test_each_stream_has_a_track_and_each_rank_a_process() -> None:
    schedule = add_parameters(schedule_of("zeropp"))
    found = timeline(schedule, activation_transfer_ns=5, unshard_ns=7, reduce_grad_ns=9, optimizer_ns=11)
    assert [f"{track.process}: {track.thread}" for track in found.tracks] == [
        "rank 0: compute",
        "rank 0: send to rank 1",
        "rank 0: unshard",
        "rank 0: reduce",
        "rank 1: compute",
        "rank 1: send to rank 0",
        "rank 1: unshard",
        "rank 1: reduce",
    ]
    assert found.categories == CATEGORIES
    kinds = {(span.category, span.end_ns - span.start_ns) for span in found.spans}
    assert {("gather", 7), ("reduction", 9), ("optimizer", 22), ("transfer", 5)} <= kinds


def test_sends_to_two_ranks_at_once_do_not_share_a_track() -> None:
    found = timeline(
        schedule_of("zeropp", num_ranks=3), activation_transfer_ns=9000, gradient_transfer_ns=9000
    )
    threads = {track.thread for track in found.tracks if track.process == "rank 1"}
    assert {"send to rank 0", "send to rank 2"} <= threads


@pytest.mark.parametrize("transfer_ns", [0, 400])
def test_arrows_lead_from_each_output_to_what_waits_for_it_on_another_rank(transfer_ns: int) -> None:
    schedule = schedule_of("zb-v", num_ranks=3)
    found = timeline(schedule, activation_transfer_ns=transfer_ns, gradient_transfer_ns=transfer_ns)
    stages = schedule.num_stages
    crossing = sum(schedule.rank_of_stage[s] != schedule.rank_of_stage[s + 1] for s in range(stages - 1))
    messages = 2 * crossing * schedule.num_microbatches
    assert len(found.flows) == messages * (2 if transfer_ns else 1)
    arrows = {(flow.source.name, flow.target.name, flow.name) for flow in found.flows}
    if transfer_ns:
        assert {("F0.1", "F0.1", "activation"), ("F0.1", "F1.1", "activation")} <= arrows
    else:
        assert {("F0.1", "F1.1", "activation"), ("I5.0", "I4.0", "gradient")} <= arrows
    assert all(flow.source.end_ns <= flow.target.start_ns for flow in found.flows)


def test_memory_is_a_counter_for_each_kind_and_their_sum() -> None:
    steps = [
        MemoryStep(0, 0, MemoryKind.PARAMETER, 100),
        MemoryStep(5, 0, MemoryKind.ACTIVATION, 10),
        MemoryStep(5, 0, MemoryKind.PARAMETER, 0),
        MemoryStep(9, 0, MemoryKind.ACTIVATION, 30),
        MemoryStep(2, 1, MemoryKind.WEIGHT_GRAD_INPUT, 7),
    ]
    counters = timeline_of([], title="test", memory=steps).counters
    assert [(one.process, one.name, one.points) for one in counters] == [
        ("rank 0", "activation", ((5, 10), (9, 30))),
        ("rank 0", "parameter", ((0, 100), (5, 0))),
        ("rank 0", "sum", ((0, 100), (5, 10), (9, 30))),
        ("rank 1", "weight grad input", ((2, 7),)),
    ]


def test_ranks_without_tasks_are_there_and_keep_their_number() -> None:
    task = Task(2, StreamKind.COMPUTE, Action.parse("0F0"), 0, 5)
    found = timeline_of([task], title="test", num_ranks=4)
    assert found.processes == ("rank 0", "rank 1", "rank 2", "rank 3")
    assert found.basis == "simulated"


def test_the_order_of_tasks_means_nothing() -> None:
    schedule = add_parameters(schedule_of("zeropp", num_ranks=3))
    costs = StageCosts.of(
        6, forward_ns=5, input_grad_ns=7, weight_grad_ns=3, activation_transfer_ns=2, unshard_ns=4
    )
    tasks = simulate_tasks(schedule, costs, engine="python")
    one, other = (encode_trace(timeline_of(each, title="test")) for each in (tasks, tasks[::-1]))
    assert one == other
