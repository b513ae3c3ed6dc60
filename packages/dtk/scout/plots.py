"""Plots of a generation: what the host did by step and by layer, and how well queries were predicted."""

from pathlib import Path

from matplotlib.figure import Figure

from dtk.scout.figures import save_figure
from dtk.scout.generation import GenerationReport

__all__ = ["plot_generation"]


def plot_generation(report: GenerationReport, folder: Path) -> list[Path]:
    """Write `generation.svg` and `generation.png` into `folder` and return their paths."""
    # A Figure of its own never touches pyplot's global state, nor needs a display.
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    by_step, by_layer, cosine = figure.subplots(1, 3)
    by_step.plot([100 * ratio for ratio in report.cpu_ratio_by_step])
    by_step.set(
        xlabel="decode step", ylabel="CPU ratio (% of budget)", title="host share by step", ylim=(0, None)
    )
    layers = [i for i, ratio in enumerate(report.cpu_ratio_by_layer) if ratio is not None]
    by_layer.bar(layers, [100 * (report.cpu_ratio_by_layer[i] or 0.0) for i in layers])
    by_layer.set(xlabel="layer", ylabel="CPU ratio (% of budget)", title="host share by layer")
    predicted = [(i, value) for i, value in enumerate(report.query_cosine_by_layer) if value is not None]
    cosine.plot([i for i, _ in predicted], [value for _, value in predicted], marker=".")
    cosine.set(xlabel="layer", ylabel="cosine", title="predicted to real query", ylim=(None, 1))
    return save_figure(figure, folder, "generation")
