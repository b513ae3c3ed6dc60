"""vTrain's runs of several nodes by model: all layouts of one model and batch, fitted and judged together."""

from collections.abc import Mapping
from typing import Final

from dtk.pipeline.iteration.accuracy.judging import SetAccuracy
from dtk.pipeline.iteration.accuracy.ranking import Ranking, rank
from dtk.pipeline.iteration.accuracy.sets import VTRAIN_SIZES
from dtk.pipeline.iteration.published import Comparison

__all__ = ["VTRAIN_TABLES", "rank_sizes", "vtrain_rows"]

VTRAIN_TABLES: Final = ("vtrain", "vtrain-tp16", "vtrain-fitted", "vtrain-tp16-fitted")
"""The judged sets that together are the table of several nodes."""


def vtrain_rows(
    accuracies: Mapping[str, SetAccuracy], *, judged_only: bool = False
) -> dict[str, list[Comparison]]:
    """Return the predictions of all runs of several nodes by model: 3.6B, 18.4B, 175B.

    Args:
        accuracies: Judged sets by name.
        judged_only: Leave out the rows that the constants were fitted to.
    """
    rows: dict[str, list[Comparison]] = {size: [] for size in VTRAIN_SIZES}
    sizes = {hidden: size for size, hidden in VTRAIN_SIZES.items()}
    for name in VTRAIN_TABLES:
        if not (judged_only and accuracies[name].judged.is_fitted):
            for each in accuracies[name].comparisons:
                rows[sizes[each.measured.shape.hidden_size]].append(each)
    return rows


def rank_sizes(accuracies: Mapping[str, SetAccuracy], *, judged_only: bool = False) -> dict[str, Ranking]:
    """Return how well the layouts of each model are ranked."""
    rows = vtrain_rows(accuracies, judged_only=judged_only)
    return {size: rank(each) for size, each in rows.items()}
