"""A comparison of schedules as bars: how long each takes, what it holds, and how often it gathers."""

import io
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtk.timeline.files import write_atomically
from dtk.zeropp.comparison import Comparison
from dtk.zeropp.config import ZeroppConfig

__all__ = ["plot_comparison"]

_COMPUTE, _IDLE, _COUNT = "#2563eb", "#fca5a5", "#059669"


def plot_comparison(comparison: Comparison, config: ZeroppConfig, folder: Path) -> list[Path]:
    """Write `comparison.svg` and `comparison.png` into `folder` and return their paths.

    The same comparison gives the same bytes.
    """
    paths = [folder / f"comparison.{kind}" for kind in ("svg", "png")]
    with rc_context({"svg.hashsalt": "dtk", "svg.fonttype": "none"}):
        figure = _draw(comparison, config)
        for path, metadata in zip(paths, ({"Date": None, "Creator": None}, {"Software": None}), strict=True):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=path.suffix.removeprefix("."), metadata=metadata)
            write_atomically(path, buffer.getvalue())
    return paths


def _draw(comparison: Comparison, config: ZeroppConfig) -> Figure:
    figure = Figure(figsize=(11, 1.9 + 0.35 * len(comparison.rows)), layout="constrained")
    sizes = f"P={config.pp}, V={comparison.num_chunks}, M={config.micro_batches}"
    figure.suptitle(f"Pipeline schedules, {sizes} (simulated)")
    times, activations, gathers = figure.subplots(1, 3, sharey=True, width_ratios=(2, 1, 1))
    names = [row.name for row in comparison.rows]
    _draw_times(times, comparison, names)
    _draw_counts(activations, names, [float(row.peak_activation_chunks) for row in comparison.rows])
    activations.set_xlabel("activations at once, chunks")
    _draw_counts(gathers, names, [float(row.gathered_chunks) for row in comparison.rows])
    gathers.set_xlabel("gathered chunks")
    times.invert_yaxis()
    figure.legend(*times.get_legend_handles_labels(), fontsize="small", ncols=3, loc="outside lower center")
    return figure


def _draw_times(axes: Axes, comparison: Comparison, names: list[str]) -> None:
    spans = [row.report.simulation.makespan_ns / 1e9 for row in comparison.rows]
    computed = [
        span * (1 - float(row.report.simulation.bubble_ratio))
        for span, row in zip(spans, comparison.rows, strict=True)
    ]
    axes.barh(names, computed, color=_COMPUTE, label="compute, mean of the ranks")
    idle = [span - busy for span, busy in zip(spans, computed, strict=True)]
    axes.barh(names, idle, left=computed, color=_IDLE, label="idle")
    axes.axvline(
        comparison.lower_bound_ns / 1e9, color="black", linestyle="--", linewidth=1, label="lower bound"
    )
    axes.set_xlabel("seconds an iteration")


def _draw_counts(axes: Axes, names: list[str], counts: list[float]) -> None:
    bars = axes.barh(names, counts, color=_COUNT)
    axes.bar_label(bars, fmt="{:g}", fontsize="small", padding=2)
    axes.margins(x=0.15)
