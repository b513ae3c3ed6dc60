"""Plots of the cost model's predictions beside published measurements, as data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dtk.repro.observed import Plot, Series

if TYPE_CHECKING:
    from dtk.pipeline.iteration.accuracy.judging import SetAccuracy
    from dtk.pipeline.iteration.accuracy.memory import MemoryAccuracy
    from dtk.pipeline.iteration.published import Comparison

__all__ = ["error_plot", "memory_plot", "times_plot"]

_GIB = 2**30


def times_plot(sets: Sequence["SetAccuracy"], title: str) -> Plot:
    """Return predicted against measured seconds of each run, with a band of a tenth, on logarithmic axes."""
    points = [
        Series(
            name=each.judged.name,
            x=tuple(row.measured.measured_s for row in each.comparisons),
            y=tuple(row.estimated.iteration_s for row in each.comparisons),
            style="points",
            basis="simulated",
        )
        for each in sets
    ]
    return Plot(
        title=title,
        x_label="measured seconds of an iteration (published)",
        y_label="predicted seconds",
        series=(*points, *_band([x for series in points for x in series.x if isinstance(x, float)])),
        x_scale="log",
        y_scale="log",
    )


def error_plot(
    sets: Sequence["SetAccuracy"],
    title: str,
    x_label: str,
    x_of: Callable[["Comparison"], float],
    *,
    x_scale: str = "log",
) -> Plot:
    """Return each run's relative error in percent against something that it has."""
    return Plot(
        title=title,
        x_label=x_label,
        y_label="error, %: above 0 too slow",
        series=tuple(
            Series(
                name=each.judged.name,
                x=tuple(float(x_of(row)) for row in each.comparisons),
                y=tuple(100 * row.error for row in each.comparisons),
                style="points",
                basis="simulated",
            )
            for each in sets
        ),
        lines={"10 %": 10.0, "-10 %": -10.0},
        x_scale="log" if x_scale == "log" else "linear",
    )


def memory_plot(tables: Iterable["MemoryAccuracy"], title: str) -> Plot:
    """Return predicted against published GiB of the fullest chip, with a band of a tenth."""
    points = [
        Series(
            name=each.name,
            x=tuple(row.published_bytes / _GIB for row in each.rows),
            y=tuple(row.estimated_bytes / _GIB for row in each.rows),
            style="points",
            basis="simulated",
        )
        for each in tables
    ]
    return Plot(
        title=title,
        x_label="published GiB",
        y_label="predicted GiB",
        series=(*points, *_band([x for series in points for x in series.x if isinstance(x, float)])),
        x_scale="log",
        y_scale="log",
    )


def _band(measured: Sequence[float]) -> tuple[Series, ...]:
    low, high = min(measured), max(measured)
    # Three points, as lines of two are drawn with marks.
    ends = low, (low * high) ** 0.5, high
    factors: Mapping[str, float] = {"10 % more": 1.1, "10 % less": 0.9}
    return tuple(
        Series(name=name, x=ends, y=tuple(factor * x for x in ends), basis="analytic")
        for name, factor in factors.items()
    )
