"""Checks of the cost model against published measurements; constants are those of the package.

Left out: runs on GPUs of this machine, and rows that have no bar (the documentation's page shows them all).
"""

from typing import TYPE_CHECKING, Literal

from dtk.repro.checks import Observed, RunContext
from dtk.repro.values import Model

if TYPE_CHECKING:
    from dtk.pipeline.iteration.accuracy.judging import SetAccuracy

__all__ = ["Figure", "activation_bytes", "errors", "layout_choice"]


class Figure(Model):
    """Which error of which set.

    Attributes:
        judged: A name of `dtk.pipeline.iteration.accuracy.sets`.
        statistic: The mean of absolute relative errors, or the largest.
    """

    judged: str
    statistic: Literal["mean", "worst"]


def errors(context: RunContext, *, figures: dict[str, Figure]) -> Observed:
    """Errors of predicted iterations, in percent, by the name that the claim gives each."""
    from dtk.repro.cost_model_plots import times_plot

    names = list(dict.fromkeys(figure.judged for figure in figures.values()))
    accuracies = {name: _judged(context, name) for name in names}
    value = {
        label: 100 * getattr(accuracies[figure.judged].error, figure.statistic)
        for label, figure in figures.items()
    }
    counts = {name: len(accuracy.comparisons) for name, accuracy in accuracies.items()}
    fitted = {name: accuracy.num_constants("fitted") for name, accuracy in accuracies.items()}
    far_off = {row.measured.name: f"{row.error:+.1%}" for each in accuracies.values() for row in each.far_off}
    return Observed(
        value=value,
        basis="simulated",
        details={"runs": counts, "fitted constants": fitted, "more than a tenth off": far_off},
        plots=(times_plot(list(accuracies.values()), "Predicted and published iterations"),),
    )


def activation_bytes(context: RunContext) -> Observed:
    """Errors of predicted activations against those that Korthikanti et al. print, in percent."""
    from dtk.pipeline.iteration.accuracy.memory import judge_memory
    from dtk.repro.cost_model_plots import memory_plot

    table = next(each for each in judge_memory() if each.name == "korthikanti-activations")
    return Observed(
        value={"mean error": 100 * table.mean, "worst error": 100 * table.worst},
        basis="simulated",
        details={row.run: f"{row.error:+.1%}" for row in table.rows},
        plots=(memory_plot([table], table.title),),
    )


def layout_choice(context: RunContext) -> Observed:
    """What the layout that the model finds fastest takes longer than the fastest measured one, in percent."""
    from dtk.pipeline.iteration.accuracy.ranking import CALCULON
    from dtk.pipeline.iteration.accuracy.sizes import VTRAIN_TABLES, rank_sizes

    rankings = rank_sizes({name: _judged(context, name) for name in VTRAIN_TABLES})
    return Observed(
        value={size: 100 * ranking.regret for size, ranking in rankings.items()},
        basis="simulated",
        details={
            "Kendall's tau": {size: round(ranking.tau, 3) for size, ranking in rankings.items()},
            "layouts": {size: ranking.num_rows for size, ranking in rankings.items()},
            CALCULON.name: {"tau": CALCULON.tau, "source": CALCULON.source},
        },
    )


def _judged(context: RunContext, name: str) -> "SetAccuracy":
    from dtk.pipeline.iteration.accuracy.judging import judge
    from dtk.pipeline.iteration.accuracy.sets import judged_sets

    judged = next((each for each in judged_sets() if each.name == name), None)
    if judged is None:
        raise ValueError(f"no set named {name!r}")
    return context.shared(("cost model", name), lambda: judge(judged))
