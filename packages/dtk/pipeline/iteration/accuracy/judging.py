"""Predictions of the judged sets beside the measurements: errors, bars, and the constants they rest on."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from dtk.costmodel.constants import ChipConstants, GeneralConstants, StackConstants, general_constants
from dtk.pipeline.iteration.accuracy.sets import Bar, JudgedSet, judged_sets
from dtk.pipeline.iteration.published import Comparison, compare

__all__ = ["FAR_OFF", "GroupError", "SetAccuracy", "UsedConstant", "Verdict", "judge", "judge_all"]

FAR_OFF: Final = 0.10
"""Relative error beyond which a row needs a reason."""

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar and what came out.

    Attributes:
        bar: The bar.
        value: The statistic.
    """

    bar: Bar
    value: float

    @property
    def passed(self) -> bool:
        """Whether the bar is met."""
        return self.value <= self.bar.at_most


@dataclass(frozen=True, slots=True)
class GroupError:
    """Errors of some rows.

    Attributes:
        num_rows: Rows.
        mean: Mean of absolute relative errors.
        median: Median of the errors with their sign: above 0 the model is too slow.
        worst: Largest absolute relative error.
    """

    num_rows: int
    mean: float
    median: float
    worst: float

    @classmethod
    def of(cls, comparisons: tuple[Comparison, ...]) -> "GroupError":
        """Return the errors of these rows, of which there is one at least."""
        errors = [comparison.error for comparison in comparisons]
        sizes = [abs(error) for error in errors]
        return cls(len(errors), statistics.fmean(sizes), statistics.median(errors), max(sizes))


@dataclass(frozen=True, slots=True, order=True)
class UsedConstant:
    """A constant that predictions rest on.

    Attributes:
        owner: The set of constants that it belongs to.
        name: Its name there.
        value: It.
        origin: `fitted`, `published` or `estimate`.
        source: Where it comes from.
        borrowed_from: Of an estimate that was fitted for another set, that set; else empty.
    """

    owner: str
    name: str
    value: float
    origin: str
    source: str
    borrowed_from: str = ""


@dataclass(frozen=True)
class SetAccuracy:
    """A judged set and what the model says of it.

    Attributes:
        judged: The set.
        comparisons: Each run, predicted and measured.
    """

    judged: JudgedSet
    comparisons: tuple[Comparison, ...]

    @cached_property
    def error(self) -> GroupError:
        """Errors of all its rows."""
        return GroupError.of(self.comparisons)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Its bars."""
        return tuple(Verdict(bar, getattr(self.error, bar.statistic)) for bar in self.judged.bars)

    @property
    def passed(self) -> bool:
        """Whether it meets all of them."""
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def far_off(self) -> tuple[Comparison, ...]:
        """Its rows that are more than a tenth off, in the table's order."""
        return tuple(each for each in self.comparisons if abs(each.error) > FAR_OFF)

    @cached_property
    def constants(self) -> tuple[UsedConstant, ...]:
        """What its predictions rest on, each constant once."""
        used = set(_constants(general_constants()))
        for each in self.comparisons:
            run = each.estimated.run
            used.update(_constants(run.machine.constants), _constants(run.stack))
        return tuple(sorted(used))

    def num_constants(self, origin: str) -> int:
        """Return how many of them are `fitted`, `published` or `estimate`."""
        return sum(constant.origin == origin for constant in self.constants)

    @property
    def num_borrowed(self) -> int:
        """How many estimates are values that were fitted for another chip or other software."""
        return sum(bool(constant.borrowed_from) for constant in self.constants)

    def grouped(self, key: Callable[[Comparison], KeyT]) -> dict[KeyT, GroupError]:
        """Return the errors of rows with the same key, by size, ranks or depth of the pipeline."""
        groups: dict[KeyT, list[Comparison]] = {}
        for each in self.comparisons:
            groups.setdefault(key(each), []).append(each)
        return {value: GroupError.of(tuple(rows)) for value, rows in groups.items()}


def judge(
    judged: JudgedSet, *, stack: StackConstants | None = None, constants: ChipConstants | None = None
) -> SetAccuracy:
    """Predict a set.

    Args:
        judged: The set.
        stack: Software; the packaged constants without it.
        constants: What all chips reach; the packaged constants of each chip without it.
    """
    found = compare(judged.runs, stack=stack, constants=constants, profiles=judged.profiles)
    return SetAccuracy(judged, found)


def judge_all() -> tuple[SetAccuracy, ...]:
    """Predict every set with the packaged constants; about three seconds."""
    return tuple(judge(each) for each in judged_sets())


def _constants(used: ChipConstants | StackConstants | GeneralConstants) -> tuple[UsedConstant, ...]:
    return tuple(
        UsedConstant(
            used.name,
            name,
            getattr(used, name),
            origin.origin,
            origin.source,
            origin.borrowed_from or "",
        )
        for name, origin in used.origins.items()
    )
