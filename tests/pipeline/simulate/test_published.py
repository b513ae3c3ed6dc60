"""The published figures of named schedules come out of the simulator: slots, bubbles, memory, traffic."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.pipeline.action import Action, Kind
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.interleaved import interleaved
from dtk.pipeline.generators.looped_bfs import looped_bfs
from dtk.pipeline.generators.one_f_one_b import one_f_one_b
from dtk.pipeline.generators.zb_h1 import zb_h1
from dtk.pipeline.generators.zb_h2 import zb_h2
from dtk.pipeline.generators.zeropp import zeropp
from dtk.pipeline.lowering import add_parameters
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate, simulate_tasks
from dtk.pipeline.simulate.result import MemoryKind, Simulation, TrafficKind
from tests.pipeline.generators.test_zero_bubble import PROFILES

GOLDEN = Path(__file__).parents[1] / "generators" / "golden"


def run(schedule: Schedule, forward: int, input_grad: int, weight_grad: int, **others: int) -> Simulation:
    costs = costs_of(schedule, forward, input_grad, weight_grad, **others)
    return simulate(schedule, costs)


def costs_of(
    schedule: Schedule, forward: int, input_grad: int, weight_grad: int, **others: int
) -> StageCosts:
    return StageCosts.of(
        schedule.num_stages,
        forward_ns=forward,
        input_grad_ns=input_grad,
        weight_grad_ns=weight_grad,
        **others,
    )


def longest_own_time(schedule: Schedule, costs: StageCosts) -> int:
    """Return the most that a rank takes from its own start to its own end, as the paper counts ZB-H2."""
    spans: dict[int, tuple[int, int]] = {}
    for task in simulate_tasks(schedule, costs):
        if task.peer is None:
            start, end = spans.get(task.rank, (task.start_ns, 0))
            spans[task.rank] = min(start, task.start_ns), max(end, task.end_ns)
    return max(end - start for start, end in spans.values())


# -- ZeroPP's worked example and formulas --------------------------------------------------------------------


def test_worked_example() -> None:
    """The slots of the author's schedule for P = 4, V = 2, U = 4, M = 4."""
    schedule = zeropp(4, 2, 4, unit=4)
    slots = [["..."] * 27 for _ in range(4)]
    for task in simulate_tasks(schedule, costs_of(schedule, 1, 1, 1)):
        assert task.action is not None
        letter = {Kind.INPUT_GRAD: "B"}.get(task.action.kind, task.action.kind.value)
        slots[task.rank][task.start_ns] = f"{letter}{task.action.stage // 4}{task.action.microbatch}"
    lines = [f"r{rank} {' '.join(row)}" for rank, row in enumerate(slots)]
    assert "\n".join(lines) + "\n" == (GOLDEN / "zeropp_p4_v2_u4.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("unit", "num_microbatches", "slots", "idle"),
    [(4, 4, 27, 3), (4, 8, 54, 6), (8, 8, 51, 3), (8, 32, 195, 3)],
)
def test_slots_of_several_units(unit: int, num_microbatches: int, slots: int, idle: int) -> None:
    result = run(zeropp(4, 2, num_microbatches, unit=unit), 1, 1, 1)
    assert (result.makespan_ns, result.idle_total_ns) == (slots, (idle,) * 4)


def idle_slots(num_ranks: int, num_chunks: int, units: list[int]) -> int:
    """Return the idle slots where all times are 1 and units have these sizes."""
    fill = num_ranks - 1
    [unit] = set(units)
    if unit >= 2 * num_ranks:
        return fill
    if unit >= num_ranks:
        return fill + (len(units) - 1) * (2 * num_ranks - 1 - unit or 1)
    return len(units) * (fill + num_chunks * (num_ranks - unit))


@pytest.mark.parametrize("num_chunks", [2, 3, 4])
@pytest.mark.parametrize("num_ranks", range(2, 9))
def test_idle_time_and_activations_of_equal_costs(num_ranks: int, num_chunks: int) -> None:
    for unit in range(-(-num_ranks // 2), 2 * num_ranks + 3):
        for num_units in (1, 2, 3):
            result = run(
                zeropp(num_ranks, num_chunks, unit * num_units, unit=unit),
                1, 1, 1, activation_bytes=3, weight_grad_bytes=1,
            )  # fmt: skip
            expected = idle_slots(num_ranks, num_chunks, [unit] * num_units)
            assert result.idle_total_ns == (expected,) * num_ranks, (unit, num_units)
            if unit >= num_ranks:
                peak = min(unit * num_chunks, (num_chunks - 1) * unit + 2 * num_ranks)
                assert result.peak_activation_chunks == (peak,) * num_ranks, (unit, num_units)
            if unit >= 2 * num_ranks - 1:
                kinds = result.peak_bytes_by_kind
                for rank in range(num_ranks):
                    live = (num_chunks - 1) * unit + 2 * (num_ranks - 1 - rank) + 1
                    assert kinds[rank][MemoryKind.ACTIVATION] == 3 * live
                    assert kinds[rank][MemoryKind.WEIGHT_GRAD_INPUT] == 2 * (rank + 1)


@pytest.mark.parametrize(("unit", "num_units"), [(4, 1), (4, 3), (8, 3)])
def test_without_the_split_each_unit_idles_twice_the_fill(unit: int, num_units: int) -> None:
    result = run(zeropp(4, 2, unit * num_units, unit=unit, split=False), 1, 1, 1)
    assert result.idle_total_ns == (6 * num_units,) * 4


@pytest.mark.parametrize(
    ("times", "idle"), [((1, 2, 1), {1: 3, 3: 9}), ((2, 3, 1), {1: 9, 3: 27})], ids=["1-2-1", "2-3-1"]
)
def test_unequal_costs_grow_with_the_number_of_units(
    times: tuple[int, int, int], idle: dict[int, int]
) -> None:
    for num_units, expected in idle.items():
        result = run(zeropp(4, 2, 8 * num_units, unit=8), *times)
        assert set(result.idle_total_ns) == {expected}


# Bubble rates of ZeroPP with the profiles of table 9, by its own first author's schedule: U = P and U = 2P.
ZEROPP_BUBBLES = {
    (8, 3, 24): (0.1818, 0.1069), (8, 3, 64): (0.1906, 0.0668),
    (8, 4, 24): (0.1229, 0.0640), (8, 4, 64): (0.1255, 0.0358),
    (16, 3, 48): (0.1629, 0.0859), (16, 3, 128): (0.1634, 0.0466),
    (32, 2, 96): (0.2082, 0.1123), (32, 2, 256): (0.2120, 0.0651),
}  # fmt: skip


def profiles() -> Iterator[tuple[int, int, int, tuple[int, ...], tuple[float, ...]]]:
    """Yield P, V, M, the times of table 9, in twelfths of a microsecond, and the row of table 5."""
    for (num_ranks, num_chunks), rows in PROFILES.items():
        for num_microbatches, times, bubbles in rows:
            yield num_ranks, num_chunks, num_microbatches, tuple(12 * time for time in times), bubbles


def transfers(time: int) -> dict[str, int]:
    return {"activation_transfer_ns": time, "gradient_transfer_ns": time}


@pytest.mark.parametrize(
    ("num_ranks", "num_chunks", "num_microbatches", "times", "published"),
    [pytest.param(*each, id=f"p{each[0]}-m{each[2]}-v{each[1]}") for each in profiles()],
)
def test_bubble_rates_of_table_5(
    num_ranks: int,
    num_chunks: int,
    num_microbatches: int,
    times: tuple[int, ...],
    published: tuple[float, ...],
) -> None:
    whole, transfer = times[:3], transfers(times[3])
    chunk = [time // num_chunks for time in whole]
    busy = num_microbatches * sum(whole)
    zero_bubble = zb_h2(num_ranks, num_microbatches)
    found = [
        run(one_f_one_b(num_ranks, num_microbatches), *whole, **transfer).makespan_ns,
        run(interleaved(num_ranks, num_chunks, num_microbatches), *chunk, **transfer).makespan_ns,
        run(zb_h1(num_ranks, num_microbatches), *whole, **transfer).makespan_ns,
        longest_own_time(zero_bubble, costs_of(zero_bubble, *whole, **transfer)),
    ]
    for duration, cell, points in zip(found, published, (0.2, 0.5, 0.2, 0.2), strict=True):
        assert 100 * (1 - busy / duration) == pytest.approx(100 * cell, abs=points)
    for factor, cell in zip(
        (1, 2), ZEROPP_BUBBLES.get((num_ranks, num_chunks, num_microbatches), ()), strict=False
    ):
        schedule = zeropp(num_ranks, num_chunks, num_microbatches, unit=factor * num_ranks)
        bubble = 1 - busy / run(schedule, *chunk, **transfer).makespan_ns
        assert bubble == pytest.approx(cell, abs=1e-4)


# Table 4: samples by GPU and second of 1F1B, ZB-1p and interleaved 1F1B, and table 1: micro-batch sizes.
THROUGHPUT = {
    (8, 3): (6, [(11.8, 12.9, 13.1), (12.5, 13.4, 13.4), (13.6, 14.2, 13.9)]),
    (8, 4): (3, [(3.50, 3.88, 4.01), (3.70, 4.00, 4.08), (4.03, 4.20, 4.19)]),
    (16, 3): (1, [(1.40, 1.61, 1.54), (1.49, 1.67, 1.59), (1.64, 1.76, 1.66)]),
    (32, 2): (1, [(0.76, 0.87, 0.82), (0.80, 0.90, 0.85), (0.88, 0.96, 0.90)]),
}


@pytest.mark.parametrize(("num_ranks", "num_chunks"), THROUGHPUT)
def test_throughput_of_table_4(num_ranks: int, num_chunks: int) -> None:
    """Measured throughput is 85 to 97 % of the simulated one, by schedule in a narrow band."""
    batch, rows = THROUGHPUT[num_ranks, num_chunks]
    for (num_microbatches, profile, _), measured in zip(PROFILES[num_ranks, num_chunks], rows, strict=True):
        whole, transfer = [12 * time for time in profile[:3]], transfers(12 * profile[3])
        chunk = [time // num_chunks for time in whole]
        durations = [
            run(one_f_one_b(num_ranks, num_microbatches), *whole, **transfer).makespan_ns,
            run(zb_h1(num_ranks, num_microbatches), *whole, **transfer).makespan_ns,
            run(interleaved(num_ranks, num_chunks, num_microbatches), *chunk, **transfer).makespan_ns,
        ]
        bands = [(0.92, 0.97), (0.92, 0.94), (0.85, 0.92)]
        for duration, samples, (low, high) in zip(durations, measured, bands, strict=True):
            simulated = batch * num_microbatches / (num_ranks * duration / 12e6)
            rounding = 0.5 * (0.1 if samples > 10 else 0.01) / simulated + 0.005  # the band has two digits
            assert low - rounding <= samples / simulated <= high + rounding


# -- identities of the zero-bubble paper ---------------------------------------------------------------------

sizes = st.tuples(st.integers(1, 8), st.integers(0, 24))
# The weight gradient's time is the shortest, as in the paper's profiles.
times = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)).map(
    lambda values: (values[0] + values[2], values[1] + values[2], values[2])
)


@given(sizes, times, st.integers(1, 4))
def test_extra_time(size: tuple[int, int], values: tuple[int, int, int], num_chunks: int) -> None:
    (num_ranks, more), (forward, input_grad, weight_grad) = size, values
    hops, num_microbatches = num_ranks - 1, 2 * num_ranks - 1 + more
    busy = num_microbatches * sum(values)
    assert run(one_f_one_b(num_ranks, num_microbatches), *values).makespan_ns - busy == hops * sum(values)
    extra = run(zb_h1(num_ranks, num_microbatches), *values).makespan_ns - busy
    assert extra == hops * (forward + input_grad - weight_grad)
    schedule = zb_h2(num_ranks, num_microbatches)
    extra = longest_own_time(schedule, costs_of(schedule, *values)) - busy
    assert extra == hops * (forward + input_grad - 2 * weight_grad)
    if num_chunks > 1:
        for schedule in (
            interleaved(num_ranks, num_chunks, num_ranks * (1 + more % 4)),
            looped_bfs(num_ranks, num_chunks, num_ranks + more),
        ):
            busy = schedule.num_microbatches * num_chunks * sum(values)
            assert run(schedule, *values).makespan_ns - busy == hops * sum(values)


# -- gathers, reductions and what they move ------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "num_microbatches"), [(2, 8), (4, 8), (4, 10), (8, 8)])
@pytest.mark.parametrize("num_chunks", [1, 2, 4])
def test_traffic_falls_with_the_unit(num_chunks: int, unit: int, num_microbatches: int) -> None:
    """24 h^2 (V - 1) / V + 12 h^2 for each micro-batch over U, but for one gather: from counted messages."""
    hidden, num_ranks, num_units = 6, 3, -(-num_microbatches // unit)
    layer = 12 * hidden * hidden  # parameters, one layer a chunk
    schedule = add_parameters(zeropp(num_ranks, num_chunks, num_microbatches, unit=unit))
    result = run(schedule, 1, 1, 1, parameter_bytes=layer, gradient_bytes=layer)
    gathers = 2 * num_chunks - 1 + (num_units - 1) * (2 * num_chunks - 2)
    assert result.gathers == (gathers,) * num_ranks
    assert result.reduce_scatters == (num_chunks * num_units,) * num_ranks
    for sent in result.traffic_bytes:
        assert sent[TrafficKind.UNSHARD] == layer * gathers
        assert sent[TrafficKind.REDUCE_GRAD] == layer * num_chunks * num_units


def gathered_for_each_visit(schedule: Schedule, unit: int) -> Schedule:
    """Gather every stage once for the forwards and once for the backwards of a unit, and reduce it once."""
    rows = []
    for row in schedule.actions:
        lowered, seen = [], set()
        left = Counter(
            (action.stage, action.microbatch // unit) for action in row if action.kind == Kind.WEIGHT_GRAD
        )
        for action in row:
            visit = action.stage, action.microbatch // unit
            if action.kind != Kind.WEIGHT_GRAD and (*visit, action.kind) not in seen:
                seen.add((*visit, action.kind))
                lowered.append(Action(action.stage, Kind.UNSHARD))
            lowered.append(action)
            left[visit] -= action.kind == Kind.WEIGHT_GRAD
            if action.kind == Kind.WEIGHT_GRAD and not left[visit]:
                lowered.append(Action(action.stage, Kind.REDUCE_GRAD))
        rows.append(lowered)
    return schedule.with_actions(rows)


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 60)),
)
def test_traffic_of_units_against_tensor_parallelism(
    sizes: tuple[int, int, int, int], model: tuple[int, int, int]
) -> None:
    """36 B h^2 / U elements a layer, less than tensor parallelism's 8 B s b h just where 2 s U b > 9 h."""
    (num_ranks, num_chunks, unit, num_units), (batch, sequence, hidden) = sizes, model
    num_microbatches, layer = unit * num_units, 12 * hidden**2  # one layer a chunk
    schedule = gathered_for_each_visit(zeropp(num_ranks, num_chunks, num_microbatches, unit=unit), unit)
    result = run(schedule, 1, 1, 1, parameter_bytes=layer, gradient_bytes=layer)
    for sent in result.traffic_bytes:
        counted = sent[TrafficKind.UNSHARD] + sent[TrafficKind.REDUCE_GRAD]
        assert Fraction(counted, num_chunks) == Fraction(36 * num_microbatches * hidden**2, unit)
        tensor_parallel = 8 * num_microbatches * sequence * batch * hidden * num_chunks
        assert (counted < tensor_parallel) == (2 * sequence * unit * batch > 9 * hidden)


def test_peak_gradient_bytes_do_not_grow_with_the_micro_batches() -> None:
    """Seen elsewhere: gradients of every micro-batch kept apart."""
    peaks = set()
    for num_microbatches in (4, 8, 64):
        schedule = add_parameters(zeropp(4, 2, num_microbatches, unit=4))
        result = run(schedule, 3, 3, 3, reduce_grad_ns=1, gradient_bytes=10)
        peaks.add(tuple(kinds[MemoryKind.GRADIENT] for kinds in result.peak_bytes_by_kind))
    assert len(peaks) == 1
