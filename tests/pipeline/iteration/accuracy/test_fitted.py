"""What was fitted, to which rows, and that it sits where the fit's own objective is smallest."""

import sys
from collections.abc import Sequence

import numpy as np
import pytest
from benchmarks import fit_cost_model

from dtk.costmodel.constants import chip_constants, count_fitted, stack_constants
from dtk.costmodel.measurements import MeasuredRun, torchtitan, vtrain_multi_node, vtrain_single_node
from dtk.pipeline.iteration.accuracy.sets import fitted_half, judged_half, judged_sets

CHIP, STACK = chip_constants("A100-SXM-80GB"), stack_constants()
NUMBERS = (*fit_cost_model.PRIORS,)


def test_twelve_numbers_and_a_choice_are_fitted() -> None:
    assert len(NUMBERS) == 12
    assert {*CHIP.fitted, *STACK.fitted} == {*NUMBERS, "overlap_tensor_parallel"}
    assert count_fitted(CHIP, STACK) == 13


@pytest.mark.parametrize("table", [vtrain_multi_node(), vtrain_single_node()], ids=["several", "one node"])
def test_halves_are_disjoint_and_whole(table: tuple[MeasuredRun, ...]) -> None:
    fitted, judged = fitted_half(table), judged_half(table)
    assert {id(run) for run in fitted} & {id(run) for run in judged} == set()
    assert {id(run) for run in (*fitted, *judged)} == {id(run) for run in table}
    assert abs(len(fitted) - len(judged)) <= 1


def test_one_setting_stands_in_both_halves() -> None:
    table = vtrain_multi_node()
    again = [run.name for run in table if run.name.endswith(" #2")]
    assert len(again) == 1
    names = {run.name.removesuffix(" #2") for run in fitted_half(table)}
    both = names & {run.name.removesuffix(" #2") for run in judged_half(table)}
    assert both == {again[0].removesuffix(" #2")}
    assert not [run for run in vtrain_single_node() if "#" in run.name]


def test_only_the_fitted_halves_were_fitted() -> None:
    halves = {id(run) for table in (vtrain_multi_node(), vtrain_single_node()) for run in fitted_half(table)}
    # Of torch's FSDP on H100s held at 500 W, a row with and a row without compile.
    fitted = halves | {id(run) for run in torchtitan()[:2]}
    for judged in judged_sets():
        own = {id(run) for run in judged.runs}
        assert own <= fitted if judged.is_fitted else not own & fitted


def test_the_fit_sees_the_fitted_halves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[MeasuredRun] = []

    class SeenError(Exception):
        pass

    def fit(runs: Sequence[MeasuredRun], *_: object) -> dict[str, float]:
        seen.extend(runs)
        raise SeenError

    monkeypatch.setattr(fit_cost_model, "fit", fit)
    monkeypatch.setattr(sys, "argv", ["fit_cost_model.py"])
    with pytest.raises(SeenError):
        fit_cost_model.main()
    expected = [*fitted_half(vtrain_multi_node()), *fitted_half(vtrain_single_node())]
    assert list(map(id, seen)) == list(map(id, expected))


def packaged() -> dict[str, float]:
    return {name: getattr(CHIP if hasattr(CHIP, name) else STACK, name) for name in NUMBERS}


def objective(values: dict[str, float]) -> float:
    """The sum of softened errors of the fitted rows, and of the distances from what was known before."""
    several, one = fitted_half(vtrain_multi_node()), fitted_half(vtrain_single_node())
    runs = (*several, *one)
    predicted = fit_cost_model.predict(runs, *fit_cost_model.with_values(values, CHIP, STACK))
    errors = np.log(predicted / np.array([run.measured_s for run in runs])) / fit_cost_model.SOFTENED_BEYOND
    weights = np.r_[np.full(len(several), fit_cost_model.MULTI_NODE_WEIGHT), np.ones(len(one))]
    total = (weights * 2 * (np.sqrt(1 + errors**2) - 1)).sum()
    for name, (median, width) in fit_cost_model.PRIORS.items():
        total += (np.log(values[name] / median) / width) ** 2
    return float(total)


@pytest.fixture(scope="module")
def best() -> float:
    return objective(packaged())


@pytest.mark.parametrize("factor", [0.8, 1.25])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_constant_that_moves_fits_worse(name: str, factor: float, best: float) -> None:
    values = packaged()
    assert objective(values | {name: values[name] * factor}) > best


def test_the_choice_fits_better_than_the_other() -> None:
    other = STACK.model_copy(update={"overlap_tensor_parallel": not STACK.overlap_tensor_parallel})
    runs = fitted_half(vtrain_multi_node())
    measured = np.array([run.measured_s for run in runs])
    errors = [
        np.abs(fit_cost_model.predict(runs, CHIP, each) / measured - 1).mean() for each in (STACK, other)
    ]
    assert errors[0] < errors[1]
