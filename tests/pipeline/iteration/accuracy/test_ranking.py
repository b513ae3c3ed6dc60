"""Kendall's tau against SciPy, and how the model ranks vTrain's layouts."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from dtk.pipeline.iteration.accuracy.judging import SetAccuracy
from dtk.pipeline.iteration.accuracy.ranking import CALCULON, kendall_tau, regret
from dtk.pipeline.iteration.accuracy.sizes import rank_sizes

VALUES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12)


@given(VALUES)
def test_tau_is_scipys(pairs: list[tuple[int, int]]) -> None:
    left, right = zip(*pairs, strict=True)
    if len(set(left)) == 1 or len(set(right)) == 1:
        with pytest.raises(ValueError, match="no order"):
            kendall_tau(left, right)
    else:
        assert kendall_tau(left, right) == pytest.approx(kendalltau(left, right).statistic, abs=1e-12)


def test_regret_is_what_the_favourite_takes_longer() -> None:
    assert regret([3, 1, 2], [10, 12, 11]) == pytest.approx(0.2)
    assert regret([1, 2], [5, 6]) == 0
    assert regret([2, 1], [5, 6]) == pytest.approx(0.2)


def test_layouts_are_ranked_as_well_as_by_calculon_and_better_for_the_largest(
    accuracies: Mapping[str, SetAccuracy],
) -> None:
    ranks = rank_sizes(accuracies)
    assert {size: ranking.num_rows for size, ranking in ranks.items()} == {
        "3.6B": 26,
        "18.4B": 15,
        "175B": 21,
    }
    for size, ranking in ranks.items():
        # To the digits that Calculon's figures have.
        assert ranking.tau > CALCULON.tau[size] - 0.05
        assert ranking.regret < CALCULON.regret[size] + 5e-4
    assert ranks["175B"].tau > 0.8
    assert ranks["3.6B"].regret == 0


def test_the_mean_error_is_below_calculons(accuracies: Mapping[str, SetAccuracy]) -> None:
    rows = [*accuracies["vtrain"].comparisons, *accuracies["vtrain-fitted"].comparisons]
    assert len(rows) == 56
    assert sum(abs(row.error) for row in rows) / len(rows) < CALCULON.mean_error / 2
    assert accuracies["vtrain"].error.mean < CALCULON.mean_error
