"""Checks against zero-bubble pipelines (arXiv 2401.10241), whose tables a simulator can be held against.

ZeroPP's own are not publicly confirmed. Left out: its measured throughput and memory, which need GPUs.
"""

from typing import TYPE_CHECKING

from dtk.errors import NotTestableError
from dtk.repro.checks import Observed, Plot, RunContext, Series
from dtk.repro.values import Model

if TYPE_CHECKING:
    from dtk.pipeline.costs import StageCosts
    from dtk.pipeline.schedule import Schedule

__all__ = ["MeasuredTimes", "PublishedProfile", "best_at_more_memory", "bubble_rates", "zb_h1_is_best"]


class MeasuredTimes(Model):
    """A profile of one stage and micro-batch, in microseconds.

    Attributes:
        forward: T_F.
        input_grad: T_B.
        weight_grad: T_W.
        transfer: T_comm, of one message.
    """

    forward: int
    input_grad: int
    weight_grad: int
    transfer: int

    def costs(self, num_ranks: int, num_chunks: int = 1) -> "StageCosts":
        """Return the costs of chunks that share a stage's times equally; a message stays as large."""
        from dtk.pipeline.costs import StageCosts

        return StageCosts.of(
            num_ranks * num_chunks,
            forward_ns=round(1000 * self.forward / num_chunks),
            input_grad_ns=round(1000 * self.input_grad / num_chunks),
            weight_grad_ns=round(1000 * self.weight_grad / num_chunks),
            activation_transfer_ns=1000 * self.transfer,
            gradient_transfer_ns=1000 * self.transfer,
        )

    @property
    def work_ns(self) -> int:
        """What one micro-batch takes on one rank."""
        return 1000 * (self.forward + self.input_grad + self.weight_grad)


class PublishedProfile(Model):
    """A row of the zero-bubble paper's tables 5 and 9.

    Attributes:
        model: Its name there.
        ranks: P.
        chunks: V of the interleaved schedule.
        microbatches: M.
        times: Table 9.
        bubble_rates: Table 5, by schedule.
    """

    model: str
    ranks: int
    chunks: int
    microbatches: int
    times: MeasuredTimes
    bubble_rates: dict[str, float]


def bubble_rates(context: RunContext, *, profiles: list[PublishedProfile]) -> Observed:
    """The largest difference, in points, of bubble rates simulated from profiles and published ones."""
    worst: dict[str, float] = {}
    simulated: dict[str, dict[str, float]] = {}
    for done, profile in enumerate(profiles):
        context.progress("profiles", done, len(profiles))
        rates = _simulated_rates(profile)
        simulated[f"{profile.model}, M = {profile.microbatches}"] = rates
        for name, rate in rates.items():
            worst[name] = max(worst.get(name, 0.0), 100 * abs(rate - profile.bubble_rates[name]))
    plot = Plot(
        title="Bubble rates of zero-bubble pipelines' table 5, from its table 9",
        x_label="published bubble rate",
        y_label="simulated bubble rate",
        series=(
            *(
                Series(
                    name=name,
                    x=tuple(profile.bubble_rates[name] for profile in profiles),
                    y=tuple(rates[name] for rates in simulated.values()),
                    style="points",
                    basis="simulated",
                )
                for name in worst
            ),
            Series(name="equal to the published", x=(0.0, 0.3), y=(0.0, 0.3), basis="published"),
        ),
    )
    return Observed(value=worst, basis="simulated", details={"bubble rates": simulated}, plots=(plot,))


def _simulated_rates(profile: PublishedProfile) -> dict[str, float]:
    from dtk.pipeline.generators.interleaved import interleaved
    from dtk.pipeline.generators.one_f_one_b import one_f_one_b
    from dtk.pipeline.generators.zb_h1 import zb_h1
    from dtk.pipeline.generators.zb_h2 import zb_h2
    from dtk.pipeline.simulate import simulate

    ranks, chunks, microbatches = profile.ranks, profile.chunks, profile.microbatches
    whole, cut = profile.times.costs(ranks), profile.times.costs(ranks, chunks)
    durations = {
        "1F1B": simulate(one_f_one_b(ranks, microbatches), whole).makespan_ns,
        "1F1B-I": simulate(interleaved(ranks, chunks, microbatches), cut).makespan_ns,
        "ZB-H1": simulate(zb_h1(ranks, microbatches), whole).makespan_ns,
        # No barrier: the next iteration starts on each rank when that rank is through.
        "ZB-H2": _longest_own_time(zb_h2(ranks, microbatches), whole),
    }
    work = microbatches * profile.times.work_ns
    return {name: 1 - work / duration for name, duration in durations.items()}


def _longest_own_time(schedule: "Schedule", costs: "StageCosts") -> int:
    from dtk.pipeline.simulate import simulate_tasks
    from dtk.pipeline.simulate.result import StreamKind

    spans: dict[int, tuple[int, int]] = {}
    for task in simulate_tasks(schedule, costs):
        if task.stream is StreamKind.COMPUTE:
            start, end = spans.get(task.rank, (task.start_ns, 0))
            spans[task.rank] = min(start, task.start_ns), max(end, task.end_ns)
    return max(end - start for start, end in spans.values())


def zb_h1_is_best(
    context: RunContext, *, num_ranks: int, num_microbatches: int, times: MeasuredTimes
) -> Observed:
    """ZB-H1 simulated, and what no schedule within 1F1B's memory can beat."""
    from dtk.pipeline.bounds import makespan_bound
    from dtk.pipeline.generators.zb_h1 import zb_h1
    from dtk.pipeline.optimal import SchedulingProblem
    from dtk.pipeline.simulate import simulate

    schedule = zb_h1(num_ranks, num_microbatches)
    result = simulate(schedule, times.costs(num_ranks))
    problem = SchedulingProblem.in_chunks(
        rank_of_stage=schedule.rank_of_stage,
        num_microbatches=num_microbatches,
        costs=times.costs(num_ranks),
        chunks=num_ranks,
    )
    bound = makespan_bound(
        problem.rank_of_stage, num_microbatches, problem.costs, memory_limit=problem.memory_limit
    )
    return Observed(
        value={
            "above the bound (%)": 100 * (result.makespan_ns / bound - 1),
            "bubble rate": 1 - num_microbatches * times.work_ns / result.makespan_ns,
            "peak activations of a rank": max(result.peak_activation_chunks),
        },
        basis="simulated",
        details={"makespan (ms)": result.makespan_ns / 1e6, "lower bound (ms)": bound / 1e6},
    )


def best_at_more_memory(
    context: RunContext,
    *,
    num_ranks: int,
    num_microbatches: int,
    times: MeasuredTimes,
    memory: int,
    effort: int,
) -> Observed:
    """How far the best schedule found within so many activations is from the lower bound, at most."""
    from dtk.pipeline.optimal import optimal_schedule
    from dtk.simulation.native import native_module, why_no_native_module

    if native_module() is None:
        raise NotTestableError(f"the search for schedules is compiled code, and {why_no_native_module()}")
    found = optimal_schedule(
        num_ranks=num_ranks,
        num_chunks=1,
        num_microbatches=num_microbatches,
        costs=times.costs(num_ranks),
        memory_chunks=memory,
        seed=context.seed,
        effort=effort,
    )
    work = num_microbatches * times.work_ns
    return Observed(
        value=100 * found.gap,
        basis="simulated",
        details={
            "makespan (ms)": found.makespan_ns / 1e6,
            "lower bound (ms)": found.lower_bound_ns / 1e6,
            "proved best": found.proven,
            "bubble rate, with a barrier": 1 - work / found.makespan_ns,
        },
    )
