"""Plots of the kernel benchmark: the roofline with everybody's place under it, and how our time grows."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.roofline import intensity
from dtk.scout.bench.rows import Row
from dtk.scout.bench.scaling import Point, Scaling
from dtk.scout.figures import save_figure

__all__ = ["plot_roofline", "plot_scaling"]

_MARKERS = {"fp32": "o", "fp16": "s", "bf16": "^"}
_COLOURS = {"dtk": "C0", "torch's best": "C1", "llama.cpp": "C2"}
_INTENSITIES = (0.0625, 16.0)


def plot_roofline(rows: Sequence[Row], config: KernelBenchConfig, machine: str, folder: Path) -> list[Path]:
    """Write `roofline.svg` and `roofline.png` into `folder` and return their paths.

    The roof is that of the median limits of all rows; each point comes from its own row.
    """
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    axes: Axes = figure.subplots()
    read = statistics.median(row.read_bandwidth_bytes_per_s for row in rows)
    peak = statistics.median(row.multiply_adds_per_s for row in rows)
    low, high = _INTENSITIES
    corner = min(max(peak / read, low), high)
    roof = [min(read * x, peak) / 1e9 for x in (low, corner, high)]
    label = f"roof: reads {read / 1e9:.1f} GB/s, {peak / 1e9:.0f} G multiply-adds/s"
    axes.plot([low, corner, high], roof, color="black", label=label)
    labelled = set()
    for row in rows:
        for name, rate in _rates(row).items():
            x = intensity(row.group_size, row.dtype)
            legend = f"{name}, {row.dtype}"
            axes.plot(
                [x],
                [rate * x / 1e9],
                linestyle="none",
                marker=_MARKERS[row.dtype],
                color=_COLOURS[name],
                label="" if legend in labelled else legend,
            )
            labelled.add(legend)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(
        xlabel="arithmetic intensity (multiply-adds per byte of K/V) = group size / bytes per element",
        ylabel="10⁹ multiply-adds per second",
        title=f"Sparse decode attention, {_threads(rows[0].threads)}, {machine} (measured)\n"
        f"{_shape(config)}, {config.selected_tokens} selected tokens",
    )
    axes.grid(which="both", alpha=0.2)
    axes.legend(fontsize="small", loc="lower right")
    return save_figure(figure, folder, "roofline")


def _threads(count: int) -> str:
    return f"{count} thread" if count == 1 else f"{count} threads"


def _shape(config: KernelBenchConfig) -> str:
    heads = f"{config.kv_heads} KV {'head' if config.kv_heads == 1 else 'heads'}"
    return f"batch {config.batch}, {heads}, head size {config.head_dim}"


def _rates(row: Row) -> dict[str, float]:
    rates = {
        "dtk": row.kv_bandwidth_bytes_per_s,
        "torch's best": row.torch_best_bytes_per_s,
        "llama.cpp": row.llama_cpp_bytes_per_s,
    }
    return {name: rate for name, rate in rates.items() if rate is not None}


def plot_scaling(scaling: Scaling, config: KernelBenchConfig, machine: str, folder: Path) -> list[Path]:
    """Write `scaling.svg` and `scaling.png` into `folder` and return their paths."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    figure.suptitle(
        f"Sparse decode attention, {scaling.dtype}, group size {scaling.group_size}, "
        f"{_threads(scaling.threads)}, {machine} (measured)\n{_shape(config)}"
    )
    by_selected, by_context = figure.subplots(1, 2)
    _plot_points(by_selected, scaling.by_selected_tokens, "selected_tokens")
    slope = "" if scaling.log_log_slope is None else f", log-log slope {scaling.log_log_slope:.2f}"
    by_selected.set(xlabel="selected tokens of each sequence", title=f"time by selection{slope}")
    _plot_points(by_context, scaling.by_context_tokens, "context_tokens")
    fixed = scaling.by_context_tokens[0].selected_tokens if scaling.by_context_tokens else 0
    by_context.set(xlabel="context tokens of each sequence", title=f"{fixed} selected tokens", ylim=(0, None))
    return save_figure(figure, folder, "scaling")


def _plot_points(axes: Axes, points: Sequence[Point], size: str) -> None:
    if not points:
        return
    x = [getattr(point, size) for point in points]
    median = [1e3 * point.median_s for point in points]
    below = [1e3 * (point.median_s - point.p10_s) for point in points]
    above = [1e3 * (point.p90_s - point.median_s) for point in points]
    axes.errorbar(x, median, yerr=[below, above], marker="o", capsize=3)
    axes.set_xscale("log", base=2)
    if size == "selected_tokens":
        axes.set_yscale("log")
    axes.set_ylabel("ms a call (median, 10th to 90th percentile)")
    axes.grid(which="both", alpha=0.2)
