"""The simulator on the named schedules, against the small executor of these tests: no code is shared."""

from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate, simulate_tasks
from dtk.pipeline.simulate.result import StreamKind
from tests.pipeline.generators.test_properties import schedules
from tests.pipeline.generators.timeline import execute

durations = st.tuples(*[st.integers(0, 9)] * 3)


@given(schedules(), durations)
def test_every_action_starts_and_ends_when_the_executor_has_it(
    schedule: Schedule, times: tuple[int, int, int]
) -> None:
    forward, input_grad, weight_grad = times
    timeline = execute(schedule, forward=forward, input_grad=input_grad, weight_grad=weight_grad)
    costs = StageCosts.of(
        schedule.num_stages, forward_ns=forward, input_grad_ns=input_grad, weight_grad_ns=weight_grad
    )
    spans: list[list[tuple[int, int]]] = [[] for _ in schedule.actions]
    for task in simulate_tasks(schedule, costs):
        if task.stream is StreamKind.COMPUTE:
            spans[task.rank].append((task.start_ns, task.end_ns))
    assert spans == timeline.spans
    simulation = simulate(schedule, costs)
    assert simulation.makespan_ns == timeline.makespan
    assert list(simulation.idle_total_ns) == timeline.idle
