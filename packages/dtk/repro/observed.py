"""What a check gives back: the observed value, what it rests on, details, and plots as plain data."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pydantic

from dtk.repro.values import Basis, Value

__all__ = ["Observed", "Plot", "Series", "median_over_seeds"]


class _Model(pydantic.BaseModel):
    # NaN may come in: judging it is the tolerance classes' business, and it never passes.
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class Series(_Model):
    """One line, point cloud or group of bars of a plot.

    Attributes:
        name: Its entry in the legend.
        x: Positions, or category names for bars.
        y: Heights, as many as `x`; None leaves a gap.
        style: How to draw it.
        basis: What its figures rest on; the legend says it.
    """

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float | None, ...]
    style: Literal["line", "points", "bars"] = "line"
    basis: Basis

    @pydantic.model_validator(mode="after")
    def _is_rectangular(self) -> "Series":
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r} has {len(self.x)} x and {len(self.y)} y")
        return self


class Plot(_Model):
    """A plot as data, drawn when the report is made.

    Attributes:
        title: What it shows.
        x_label: Axis label with unit.
        y_label: Axis label with unit.
        series: What to draw.
        lines: Horizontal reference lines by name, for example the paper's value.
        x_scale: Scale of the horizontal axis, where it holds numbers.
        y_scale: Scale of the vertical axis.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    lines: dict[str, float] = {}
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"


class Observed(_Model):
    """The outcome of a check.

    Attributes:
        value: The figure, or named figures, of the same shape as the claim's expected value.
        basis: What it rests on.
        details: Whatever helps to understand the value, JSON-like.
        plots: Plots for the report.
    """

    value: Value
    basis: Basis
    details: dict[str, Any] = {}
    plots: tuple[Plot, ...] = ()


def median_over_seeds(
    samples: Sequence[float],
    *,
    basis: Basis,
    details: Mapping[str, Any] | None = None,
    plots: Sequence[Plot] = (),
) -> Observed:
    """Return the median of one figure over several seeds as the observed value; the details list the samples.

    A NaN among the samples makes the median NaN, so that a broken seed cannot hide behind good ones.
    """
    broken = any(math.isnan(sample) for sample in samples)
    value = float("nan") if broken else statistics.median(samples)
    return Observed(
        value=value, basis=basis, details={"samples": list(samples), **(details or {})}, plots=tuple(plots)
    )
