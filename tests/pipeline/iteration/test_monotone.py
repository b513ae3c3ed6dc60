"""Slower hardware, longer waits and less memory never help, whatever the run."""

from dataclasses import replace
from typing import Any

import hypothesis
from hypothesis import strategies as st

from dtk.pipeline.iteration import TrainingRun, estimate
from tests.costmodel.machines import LATENCIES, RATES, STACK_TIMES, slower
from tests.pipeline.iteration.runs import runs

RATES_AND_SHARES = [
    *RATES,
    "peak",
    "memory_bytes_per_s",
    "matmul_share",
    "attention_share",
    "memory_share",
    "fabric_share",
    "network_share",
]


def longer(run: TrainingRun, what: str, by_s: float) -> TrainingRun:
    """Return the run with one latency, or one of the software's times, longer."""
    if what in STACK_TIMES:
        return replace(run, stack=run.stack.model_copy(update={what: getattr(run.stack, what) + by_s}))
    if what in LATENCIES:
        return replace(run, machine=replace(run.machine, **{what: getattr(run.machine, what) + by_s}))
    constants = run.machine.constants
    constants = constants.model_copy(update={what: getattr(constants, what) + by_s})
    return replace(run, machine=replace(run.machine, constants=constants))


def rounding_s(run: TrainingRun) -> float:
    """What rounding each action's time to a nanosecond can add up to."""
    return 1e-8 * run.layout.num_stages * run.num_microbatches


@hypothesis.given(runs(), st.sampled_from(RATES_AND_SHARES), st.sampled_from([1.01, 2, 20]))
def test_a_slower_part_of_the_machine_never_helps(run: TrainingRun, what: str, factor: float) -> None:
    after = estimate(replace(run, machine=slower(run.machine, what, factor)))
    assert after.iteration_s >= estimate(run).iteration_s - rounding_s(run)


@hypothesis.given(
    runs(), st.sampled_from([*LATENCIES, *STACK_TIMES, "kernel_s"]), st.sampled_from([1e-6, 1e-3, 1.0])
)
def test_a_longer_wait_never_helps(run: TrainingRun, what: str, by_s: float) -> None:
    assert estimate(longer(run, what, by_s)).iteration_s >= estimate(run).iteration_s - rounding_s(run)


@hypothesis.given(runs(), st.floats(1, 1e12), st.floats(1, 10))
def test_more_memory_never_makes_a_run_worse(run: TrainingRun, memory: float, times: float) -> None:
    def with_memory(size: float) -> Any:
        chip = run.machine.chip.model_copy(update={"memory_bytes": int(size)})
        return estimate(replace(run, machine=replace(run.machine, chip=chip)))

    less, more = with_memory(memory), with_memory(memory * times)
    assert more.fits >= less.fits
    assert more.limit_bytes >= less.limit_bytes
    assert more.iteration_s == less.iteration_s
    assert more.memory == less.memory


@hypothesis.given(runs(), st.integers(2, 3))
def test_more_micro_batches_take_longer_but_no_longer_than_so_many_iterations(
    run: TrainingRun, times: int
) -> None:
    job = run.job.model_copy(update={"global_batch": times * run.job.global_batch})
    once, many = estimate(run), estimate(replace(run, job=job))
    assert many.iteration_s >= once.iteration_s
    # With sharded weights that is no theorem: other orders of chunks need other gathers.
    if run.sharding.stage < 3:
        assert many.iteration_s <= times * once.iteration_s * (1 + 1e-9)
        assert many.peak_bytes >= once.peak_bytes
