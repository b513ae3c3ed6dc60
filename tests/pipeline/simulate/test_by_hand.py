"""Small schedules whose times, idle causes, memory and traffic are worked out by hand."""

import pytest

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate, simulate_memory, simulate_tasks
from dtk.pipeline.simulate.result import IdleCause, MemoryKind, Simulation, StreamKind, TrafficKind
from dtk.pipeline.text import schedule_from_text
from dtk.simulation.engine import Engine

FILL, DRAIN, REDUCE = IdleCause.FILL, IdleCause.DRAIN, IdleCause.REDUCE
ACTIVATION, GRADIENT, TRANSFER = IdleCause.ACTIVATION, IdleCause.GRADIENT, IdleCause.TRANSFER


@pytest.fixture(params=[pytest.param("native", marks=pytest.mark.native), "python"])
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.param
    return chosen


def schedule_of(*rows: str) -> Schedule:
    return schedule_from_text("\n".join(rows), name="by hand")


def costs_of(schedule: Schedule, **others: int | list[int]) -> StageCosts:
    """Return forwards of 3, input gradients and weight gradients of 2, unless told otherwise."""
    times: dict[str, int | list[int]] = {"forward_ns": 3, "input_grad_ns": 2, "weight_grad_ns": 2}
    return StageCosts.of(schedule.num_stages, **(times | others))  # type: ignore[arg-type]


def spans(schedule: Schedule, costs: StageCosts, engine: Engine) -> dict[str, tuple[int, int]]:
    """Return start and end of everything that took time; transfers are named with an arrow."""
    tasks = simulate_tasks(schedule, costs, engine=engine)
    arrow = {StreamKind.SEND: "->"}
    return {f"{task.action}{arrow.get(task.stream, '')}": (task.start_ns, task.end_ns) for task in tasks}


def levels(schedule: Schedule, costs: StageCosts, engine: Engine, kind: MemoryKind) -> list[tuple[int, int]]:
    """Return when the memory of rank 0 of one kind changes, and to what."""
    steps = simulate_memory(schedule, costs, engine=engine)
    return [(step.time_ns, step.held_bytes) for step in steps if step.rank == 0 and step.kind is kind]


ONE_F_ONE_B = schedule_of("0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1")


def test_times_and_why_ranks_stand_still(engine: Engine) -> None:
    costs = costs_of(ONE_F_ONE_B, activation_transfer_ns=1, gradient_transfer_ns=2)
    assert spans(ONE_F_ONE_B, costs, engine) == {
        "0F0": (0, 3), "0F1": (3, 6), "0B0": (13, 17), "0B1": (20, 24),
        "1F0": (4, 7), "1B0": (7, 11), "1F1": (11, 14), "1B1": (14, 18),
        "0F0->": (3, 4), "0F1->": (6, 7), "1B0->": (11, 13), "1B1->": (18, 20),
    }  # fmt: skip
    result = simulate(ONE_F_ONE_B, costs, engine=engine)
    assert (result.makespan_ns, result.compute_ns) == (24, (14, 14))
    assert result.idle_ns == ({GRADIENT: 6, TRANSFER: 4}, {FILL: 4, DRAIN: 6})
    assert result.bubble_ratio.as_integer_ratio() == (5, 12)


def test_traffic_is_counted_where_it_is_sent(engine: Engine) -> None:
    schedule = schedule_of("0UNSHARD,0F0,2F0,2B0,0B0,0REDUCE_GRAD", "1F0,1B0")
    costs = costs_of(
        schedule,
        activation_message_bytes=[10, 20, 40],
        parameter_bytes=[100, 200, 400],
        gradient_bytes=[1000, 2000, 4000],
    )
    sent = simulate(schedule, costs, engine=engine).traffic_bytes
    assert sent[0] == {
        TrafficKind.ACTIVATION: 10, TrafficKind.GRADIENT: 20,  # the gradient of what stage 1 had sent
        TrafficKind.UNSHARD: 100, TrafficKind.REDUCE_GRAD: 1000,
    }  # fmt: skip
    assert sent[1] == {
        TrafficKind.ACTIVATION: 20, TrafficKind.GRADIENT: 10,
        TrafficKind.UNSHARD: 0, TrafficKind.REDUCE_GRAD: 0,
    }  # fmt: skip


def test_stages_on_one_rank_exchange_nothing(engine: Engine) -> None:
    schedule = schedule_of("0F0,1F0,1B0,0B0")
    costs = costs_of(schedule, activation_transfer_ns=50, activation_message_bytes=7)
    result = simulate(schedule, costs, engine=engine)
    assert result.makespan_ns == 14
    assert set(result.traffic_bytes[0].values()) == {0}


def test_one_pair_of_ranks_has_one_stream_in_the_order_of_production(engine: Engine) -> None:
    """Rank 0's activations for stage 1 and its gradients for stage 3 both go to rank 1."""
    schedule = schedule_of("0F0,2F0,0F1,2F1,4F0,4B0,2B0,0B0", "1F0,3F0,1F1,3F1,3B0,1B0")
    costs = costs_of(schedule, activation_transfer_ns=[10, 1, 1, 1, 1])
    times = spans(schedule, costs, engine)
    assert (times["0F0->"], times["2F0"]) == ((3, 13), (17, 20))
    assert (times["2F0->"], times["0F1"], times["0F1->"]) == ((20, 21), (20, 23), (23, 33))
    # Stage 3's micro-batch 0 is back at 25, and 2F1 has to wait for 1F1 all the same: the list says so.
    assert times["2F1"] == (37, 40)
    assert times["4F0"] == (40, 43)


def test_messages_that_queue_leave_at_the_pace_of_the_stream(engine: Engine) -> None:
    schedule = schedule_of("0F0,0F1,0F2", "1F0,1F1,1F2")
    times = spans(schedule, costs_of(schedule, activation_transfer_ns=5), engine)
    assert [times[f"0F{m}->"] for m in range(3)] == [(3, 8), (8, 13), (13, 18)]
    assert [times[f"1F{m}"] for m in range(3)] == [(8, 11), (13, 16), (18, 21)]
    result = simulate(schedule, costs_of(schedule, activation_transfer_ns=5), engine=engine)
    assert result.idle_ns[1] == {FILL: 8, TRANSFER: 4}


def test_the_next_rank_starts_after_one_forward_and_one_transfer(engine: Engine) -> None:
    """It does not wait for the warm-up of the rank before (sail-sg/zero-bubble #73)."""
    schedule = schedule_of("0F0,0F1,0F2,0B0,0B1,0B2", "1F0,1F1,1B0,1F2,1B1,1B2")
    assert spans(schedule, costs_of(schedule, activation_transfer_ns=1), engine)["1F0"] == (4, 7)


class TestParameters:
    LATE = schedule_of("0UNSHARD,0F0,1UNSHARD,1F0,1B0,0B0")
    EARLY = schedule_of("0UNSHARD,1UNSHARD,0F0,1F0,1B0,0B0")

    def test_a_gather_is_issued_where_it_is_listed(self, engine: Engine) -> None:
        costs = costs_of(self.LATE, unshard_ns=5)
        times = spans(self.LATE, costs, engine)
        assert (times["0UNSHARD"], times["0F0"]) == ((0, 5), (5, 8))
        assert (times["1UNSHARD"], times["1F0"]) == ((8, 13), (13, 16))
        result = simulate(self.LATE, costs, engine=engine)
        assert result.idle_ns[0] == {FILL: 5, IdleCause.UNSHARD: 5}
        assert result.gathers == (2,)

    def test_a_gather_listed_earlier_hides_behind_compute(self, engine: Engine) -> None:
        costs = costs_of(self.EARLY, unshard_ns=5)
        times = spans(self.EARLY, costs, engine)
        assert (times["0UNSHARD"], times["1UNSHARD"], times["1F0"]) == ((0, 5), (5, 10), (10, 13))
        assert simulate(self.EARLY, costs, engine=engine).idle_ns[0] == {FILL: 5, IdleCause.UNSHARD: 2}

    def test_of_two_causes_at_once_the_gather_counts(self, engine: Engine) -> None:
        schedule = schedule_of("0F0,2UNSHARD,2F0,2B0,0B0", "1F0,1B0")
        costs = costs_of(schedule, unshard_ns=3)  # 1F0 runs from 3 to 6, and so does the gather
        assert simulate(schedule, costs, engine=engine).idle_ns[0] == {IdleCause.UNSHARD: 3, GRADIENT: 4}

    def test_they_are_held_from_the_start_of_the_gather_to_the_release(self, engine: Engine) -> None:
        schedule = schedule_of("0UNSHARD,0F0,0RESHARD,1UNSHARD,1F0,1B0,1RESHARD,0UNSHARD,0B0")
        costs = costs_of(schedule, unshard_ns=5, parameter_bytes=[10, 20])
        held = levels(schedule, costs, engine, MemoryKind.PARAMETER)
        assert held == [(0, 10), (8, 20), (20, 10)]  # what is freed makes room at the same time
        assert simulate(schedule, costs, engine=engine).peak_bytes == (20,)

    def test_without_a_gather_they_are_always_there(self, engine: Engine) -> None:
        costs = costs_of(ONE_F_ONE_B, parameter_bytes=[10, 20])
        assert levels(ONE_F_ONE_B, costs, engine, MemoryKind.PARAMETER) == [(0, 10)]

    def test_a_release_waits_for_the_end_of_its_gather(self, engine: Engine) -> None:
        schedule = schedule_of("0F0,0UNSHARD,0RESHARD,0B0")
        costs = costs_of(schedule, unshard_ns=5, parameter_bytes=10)
        assert levels(schedule, costs, engine, MemoryKind.PARAMETER) == [(3, 10), (8, 0)]

    def test_what_is_there_already_takes_no_room_when_gathered_again(self, engine: Engine) -> None:
        schedule = schedule_of("0UNSHARD,0F0,0UNSHARD,0B0,0RESHARD,0RESHARD")
        costs = costs_of(schedule, unshard_ns=5, parameter_bytes=10)
        assert levels(schedule, costs, engine, MemoryKind.PARAMETER) == [(0, 10), (17, 0)]
        assert simulate(schedule, costs, engine=engine).traffic_bytes[0][TrafficKind.UNSHARD] == 20


class TestGradients:
    SCHEDULE = schedule_of("0F0,0F1,0I0,0W0,0REDUCE_GRAD,0I1,0W1,0REDUCE_GRAD")

    def test_a_reduction_holds_up_nothing_but_the_optimizer(self, engine: Engine) -> None:
        costs = costs_of(self.SCHEDULE, reduce_grad_ns=6, optimizer_ns=1, gradient_bytes=8)
        times = spans(self.SCHEDULE, costs, engine)
        assert (times["0W0"], times["0I1"], times["0W1"]) == ((8, 10), (10, 12), (12, 14))
        assert times["None"] == (22, 23)
        result = simulate(self.SCHEDULE, costs, engine=engine)
        assert (result.makespan_ns, result.compute_ns, result.idle_ns) == (23, (15,), ({REDUCE: 8},))
        assert result.reduce_scatters == (2,)

    def test_the_next_weight_gradient_needs_new_room(self, engine: Engine) -> None:
        """The first reduction runs from 10 to 16, the second from 16 to 22; the second W starts at 12."""
        costs = costs_of(self.SCHEDULE, reduce_grad_ns=6, gradient_bytes=8)
        held = levels(self.SCHEDULE, costs, engine, MemoryKind.GRADIENT)
        assert held == [(8, 8), (12, 16), (16, 8), (22, 0)]

    def test_without_a_reduction_they_stay(self, engine: Engine) -> None:
        costs = costs_of(ONE_F_ONE_B, gradient_bytes=8)
        assert levels(ONE_F_ONE_B, costs, engine, MemoryKind.GRADIENT) == [(10, 8)]


class TestOptimizer:
    SCHEDULE = schedule_of("0F0,0B0", "1F0,1B0,1REDUCE_GRAD")

    def result(self, engine: Engine, *, synchronise: bool) -> Simulation:
        costs = costs_of(self.SCHEDULE, reduce_grad_ns=9, optimizer_ns=[1, 2])
        return simulate(self.SCHEDULE, costs, engine=engine, synchronise_optimizer=synchronise)

    def test_it_waits_for_all_ranks(self, engine: Engine) -> None:
        """Compute ends at 14 and at 10, the reduction of rank 1 at 19."""
        result = self.result(engine, synchronise=True)
        assert result.makespan_ns == 21
        assert result.idle_ns[0] == {GRADIENT: 7, REDUCE: 5, DRAIN: 1}
        assert result.idle_ns[1] == {FILL: 3, DRAIN: 4, REDUCE: 5}

    def test_or_for_its_own(self, engine: Engine) -> None:
        result = self.result(engine, synchronise=False)
        assert result.makespan_ns == 21
        assert result.idle_ns[0] == {GRADIENT: 7, DRAIN: 6}
        assert result.idle_ns[1] == {FILL: 3, REDUCE: 9}


class TestActivations:
    SPLIT = schedule_of("0F0,0F1,0I0,0I1,0W1,0W0")

    def test_bytes_before_and_after_the_input_gradient(self, engine: Engine) -> None:
        costs = costs_of(self.SPLIT, activation_bytes=10, weight_grad_bytes=4)
        before = levels(self.SPLIT, costs, engine, MemoryKind.ACTIVATION)
        after = levels(self.SPLIT, costs, engine, MemoryKind.WEIGHT_GRAD_INPUT)
        assert (before, after) == ([(0, 10), (3, 20), (8, 10), (10, 0)], [(8, 4), (10, 8), (12, 4), (14, 0)])
        result = simulate(self.SPLIT, costs, engine=engine)
        assert (result.peak_bytes, result.peak_activation_chunks) == ((20,), (2,))
        assert result.peak_bytes_by_kind[0][MemoryKind.WEIGHT_GRAD_INPUT] == 8

    def test_a_full_backward_leaves_nothing(self, engine: Engine) -> None:
        schedule = schedule_of("0F0,0B0,0F1,0B1")
        costs = costs_of(schedule, activation_bytes=10, weight_grad_bytes=4)
        held = levels(schedule, costs, engine, MemoryKind.ACTIVATION)
        assert held == [(0, 10), (14, 0)]  # freed and taken at 7
        assert simulate(schedule, costs, engine=engine).peak_activation_chunks == (1,)

    def test_the_first_stage_as_torch_splits_it(self, engine: Engine) -> None:
        """Its I is empty, its W does everything, and its activations live until W."""
        costs = costs_of(self.SPLIT, activation_bytes=10, weight_grad_bytes=4).as_torch_splits()
        times = spans(self.SPLIT, costs, engine)
        assert (times["0I1"], times["0W1"], times["0W0"]) == ((6, 6), (6, 10), (10, 14))
        assert simulate(self.SPLIT, costs, engine=engine).peak_bytes == (20,)
        assert levels(self.SPLIT, costs, engine, MemoryKind.WEIGHT_GRAD_INPUT)[0] == (6, 20)


def test_an_overlapped_pair_is_one_action(engine: Engine) -> None:
    schedule = schedule_of("0F0,(0F1;0I0)OVERLAP_F_B,0W0,0B1", "1F0,1I0,1F1,1I1,1W0,1W1")
    costs = costs_of(
        schedule, activation_transfer_ns=1, gradient_transfer_ns=1, activation_bytes=10, weight_grad_bytes=4
    )
    times = spans(schedule, costs, engine)
    # 1I0 ends at 9 and has arrived at 10; the pair takes 3 + 2.
    assert times["(0F1;0I0)OVERLAP_F_B"] == (10, 15)
    assert (times["0F1->"], times["1F1"]) == ((15, 16), (16, 19))
    result = simulate(schedule, costs, engine=engine)
    assert result.idle_ns[0] == {GRADIENT: 10, TRANSFER: 2}
    assert result.peak_activation_chunks == (2, 2)
    assert levels(schedule, costs, engine, MemoryKind.ACTIVATION)[:3] == [(0, 10), (10, 20), (15, 10)]


def test_listed_sends_and_receives_take_no_time_of_their_own(engine: Engine) -> None:
    with_transfers = schedule_of(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1",
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1",
    )
    costs = costs_of(ONE_F_ONE_B, activation_transfer_ns=1, gradient_transfer_ns=2)
    assert simulate(with_transfers, costs, engine=engine) == simulate(ONE_F_ONE_B, costs, engine=engine)


def test_a_rank_with_nothing_to_do(engine: Engine) -> None:
    schedule = Schedule("idle", (0,), (schedule_of("0F0,0B0").actions[0], ()), 1)
    result = simulate(schedule, costs_of(schedule), engine=engine)
    assert (result.makespan_ns, result.compute_ns, result.idle_ns) == (7, (7, 0), ({}, {DRAIN: 7}))


def test_nothing_at_all(engine: Engine) -> None:
    schedule = Schedule("nothing", (), (), 0)
    result = simulate(schedule, costs_of(schedule), engine=engine)
    assert (result.makespan_ns, result.compute_ns, result.bubble_ratio) == (0, (), 0)
    assert simulate_tasks(schedule, costs_of(schedule), engine=engine) == []
