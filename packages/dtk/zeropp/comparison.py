"""Several schedules of one model on the same ranks, side by side.

A schedule that does not exist for the given number of chunks V runs with the nearest number that it has; the
model is then cut anew, so that all schedules compute the same. Activations, gathers and reductions count in
chunks of the given size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dtk.errors import RunFailedError
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.registry import SCHEDULES
from dtk.pipeline.schedule import Schedule
from dtk.zeropp.config import OPTIMAL, ZeroppConfig
from dtk.zeropp.making import Made, as_configured, check_memory, generate, lower, make_optimal
from dtk.zeropp.recutting import recut
from dtk.zeropp.report import ScheduleReport, report_made

__all__ = ["ComparedSchedule", "Comparison", "compare_schedules"]


@dataclass(frozen=True)
class ComparedSchedule:
    """One schedule of a comparison; what is counted in chunks is counted in those of the given size.

    Attributes:
        name: The schedule's.
        num_chunks: Its own number of chunks a rank.
        scale: How many chunks of the given size one of its own holds.
        report: About the schedule with its own chunks.
        note: How its stages differ from the given ones; empty if they do not.
    """

    name: str
    num_chunks: int
    scale: Fraction
    report: ScheduleReport
    note: str

    @property
    def peak_activation_chunks(self) -> Fraction:
        """The most chunk activations that a rank holds."""
        return max(self.report.simulation.peak_activation_chunks) * self.scale

    @property
    def gathered_chunks(self) -> Fraction:
        """The chunks that the busiest rank gathers."""
        return max(self.report.simulation.gathers) * self.scale

    @property
    def reduced_chunks(self) -> Fraction:
        """The chunks whose gradients the busiest rank reduces."""
        return max(self.report.simulation.reduce_scatters) * self.scale


@dataclass(frozen=True)
class Comparison:
    """Schedules side by side.

    Attributes:
        num_chunks: The given number of chunks a rank, V.
        rows: In the order of the settings.
        left_out: Why schedules are missing, by name.
    """

    num_chunks: int
    rows: tuple[ComparedSchedule, ...]
    left_out: Mapping[str, str]

    @property
    def lower_bound_ns(self) -> int:
        """What none of these schedules, and no other on these placements of stages, can beat."""
        return min(row.report.lower_bound_ns for row in self.rows)

    @property
    def best_makespan_ns(self) -> int:
        """The shortest makespan."""
        return min(row.report.simulation.makespan_ns for row in self.rows)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search for `optimal` early."""
        return any(row.report.interrupted for row in self.rows)

    def gap(self, row: ComparedSchedule) -> float:
        """Return how much longer a schedule takes than the lower bound, as a share of that."""
        bound = self.lower_bound_ns
        return row.report.simulation.makespan_ns / bound - 1 if bound else 0.0

    def against_best(self, row: ComparedSchedule) -> float:
        """Return how many times as long as the best one a schedule takes."""
        best = self.best_makespan_ns
        return row.report.simulation.makespan_ns / best if best else 1.0


def compare_schedules(
    config: ZeroppConfig, *, seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> Comparison:
    """Make, simulate and explain the schedules that the settings name.

    Args:
        config: Sizes, costs and names.
        seed: Of the search for `optimal`.
        progress: Told each schedule's name as its turn comes.

    Raises:
        InputError: If a size, an option, a list of times or the memory does not fit.
        RunFailedError: If `optimal` is the only schedule asked for and its compiled search is missing.
    """
    num_chunks = config.chunks or 2
    costs = config.costs(config.pp * num_chunks)
    # All is made, and refused if need be, before anything takes time.
    made = {name: _named(config, name, num_chunks, costs) for name in config.schedules if name != OPTIMAL}
    if OPTIMAL in config.schedules:
        check_memory(config, num_chunks, as_configured(config, costs))
    rows: dict[str, ComparedSchedule] = {}
    for name, one in made.items():
        progress(name)
        rows[name] = _compared(config, num_chunks, one)
    left_out: dict[str, str] = {}
    if OPTIMAL in config.schedules:
        progress(OPTIMAL)
        # Last, since it shall not be worse than the others, and Ctrl-C may end it.
        beside = [row.report.schedule for row in rows.values() if row.num_chunks == num_chunks]
        try:
            rows[OPTIMAL] = _optimal(config, num_chunks, costs, seed, beside)
        except RunFailedError as error:
            if not rows:
                raise
            left_out[OPTIMAL] = str(error)
    ordered = tuple(rows[name] for name in config.schedules if name in rows)
    return Comparison(num_chunks, ordered, left_out)


def _named(config: ZeroppConfig, name: str, num_chunks: int, costs: StageCosts) -> Made:
    """Return a named schedule with the number of chunks that it has nearest to V."""
    generator = SCHEDULES[name]
    own = max(num_chunks, generator.min_chunks)
    if generator.max_chunks is not None:
        own = min(own, generator.max_chunks)
    schedule = generate(config, name, own, strict=False)
    if own != num_chunks:
        costs = recut(costs, schedule.num_stages)
    return _made(config, schedule, as_configured(config, costs), Fraction(num_chunks, own))


def _compared(config: ZeroppConfig, num_chunks: int, made: Made) -> ComparedSchedule:
    schedule = made.schedule
    own = schedule.num_stages // schedule.num_ranks
    note = _note(num_chunks, own, made.resident_chunks or 1, config.resident_chunks or 1)
    return ComparedSchedule(schedule.name, own, Fraction(num_chunks, own), report_made(made), note)


def _made(config: ZeroppConfig, schedule: Schedule, costs: StageCosts, scale: Fraction) -> Made:
    """Lower with as many gathered chunks as the settings allow, but no fewer than the schedule needs."""
    if config.resident_chunks is not None:
        least = 2 if schedule.name == "dualpipe-v" else 1
        resident = max(int(config.resident_chunks / scale), least)
        config = config.model_copy(update={"resident_chunks": resident})
    lowered, resident_chunks = lower(config, schedule)
    return Made(lowered, costs, resident_chunks)


def _note(num_chunks: int, own: int, resident: int, allowed: int) -> str:
    parts = []
    if own < num_chunks:
        parts.append(f"takes {Fraction(num_chunks, own)} chunks as one stage, their times summed")
    elif own > num_chunks:
        parts.append(f"cuts each chunk into {own} stages, each with a share of its times")
    held = resident * Fraction(num_chunks, own)
    if held > allowed:
        parts.append(f"holds {held} gathered chunks at once")
    return "; ".join(parts)


def _optimal(
    config: ZeroppConfig, num_chunks: int, costs: StageCosts, seed: int, beside: Sequence[Schedule]
) -> ComparedSchedule:
    costs = as_configured(config, costs)
    made = make_optimal(config, num_chunks, costs, seed=seed, beside=beside)
    return ComparedSchedule(OPTIMAL, num_chunks, Fraction(1), report_made(made), "")
