import json
import time
from dataclasses import replace

import pytest

from dtk.errors import InputError
from dtk.zeropp.planning import planner
from dtk.zeropp.planning.document import plan_data
from dtk.zeropp.planning.methods import METHODS
from dtk.zeropp.planning.planner import plan
from dtk.zeropp.planning.problem import RIVALS, Pins
from dtk.zeropp.planning.search import Progress, SearchResult
from dtk.zeropp.planning.unit_choice import UnitRow
from tests.zeropp.planning.problems import GIB, every_evaluation, small_problem, tightened


def test_everything_that_is_said_of_a_plan_can_be_written() -> None:
    problem = small_problem("gpt3-125m", "DGX-A100x2", global_batch=32)
    told: list[str] = []
    found = plan(problem, rivals=RIVALS, runners_up=2, progress=lambda name, _: told.append(name))
    assert list(dict.fromkeys(told)) == list(METHODS)
    data = json.loads(json.dumps(plan_data(found)))
    assert [row["method"] for row in data["rivals"]] == list(RIVALS)
    rows = [data["best"], *data["runners_up"], *data["rivals"], *data["unit"]["rows"]]
    assert {row["basis"] for row in rows} == {"simulated"}
    assert [row["loses"] for row in data["runners_up"]] == sorted(row["loses"] for row in data["runners_up"])
    assert data["best"]["peak_bytes"] <= data["best"]["limit_bytes"]
    for row in data["rivals"]:
        ratio = row["iteration_s"] / data["best"]["iteration_s"]
        assert row["speed_up_of_zeropp"] == pytest.approx(ratio)
        assert row["search"]["proven"]
        assert set(row["traffic_bytes"]) == set(data["best"]["traffic_bytes"])
    assert data["search"]["proven"]
    assert not data["left_out"]


def test_the_chosen_unit_is_the_shortest_that_fits() -> None:
    pins = Pins(pipeline_parallel=4, chunks=3, micro_batch=1, shard_ranks=2, resident_chunks=1)
    problem = small_problem(global_batch=32, pins=pins)
    peaks = [each.estimate.peak_bytes for each in every_evaluation(problem, METHODS["zeropp"].space(problem))]
    found = plan(tightened(problem, sorted(peaks)[len(peaks) // 2]))
    choice, best = found.unit, found.best
    assert choice is not None
    assert best is not None
    fitting: list[UnitRow] = [row for row in choice.rows if row.evaluated.fits]
    assert len(fitting) < len(choice.rows)
    assert min(row.evaluated.iteration_s for row in fitting) == best.iteration_s
    assert choice.chosen == best.candidate.schedule.unit
    assert {row.unit for row in choice.rows} >= {1, 4, 7, 8, 16}
    # 9 * 768 / (2 * 512) = 6.75
    assert choice.least_by_condition == 7
    assert next(row.unit for row in choice.rows if row.meets_condition) == 7


def test_what_fits_nowhere_is_told_with_the_nearest() -> None:
    problem = tightened(small_problem(pins=Pins(pipeline_parallel=2, micro_batch=1)), 2.5 * GIB)
    found = plan(problem, rivals=("3d",))
    assert found.best is None
    assert found.unit is None
    everything = every_evaluation(problem, METHODS["zeropp"].space(problem))
    least = min(each.estimate.peak_bytes for each in everything)
    assert found.shortfall is not None
    needed = found.shortfall.memory.total_bytes
    assert least <= needed <= 1.02 * least
    assert found.shortfall.excess_bytes == needed - problem.limit_bytes > 0
    data = json.loads(json.dumps(plan_data(found)))
    assert data["best"] is None
    assert data["nearest_that_does_not_fit"]["excess_bytes"] == found.shortfall.excess_bytes
    assert data["nearest_that_does_not_fit"]["constraint"] == "memory"


def test_a_rival_that_fits_nowhere_says_so() -> None:
    problem = small_problem("opt-13b", "DGX-A100x1", global_batch=8, max_micro_batch=1)
    found = plan(replace(problem, pins=Pins(pipeline_parallel=2, chunks=4)), rivals=("3d", "fsdp"))
    data = plan_data(found)
    by_name = {row["method"]: row for row in data["rivals"]}
    assert by_name["fsdp"]["fits"]
    assert all("search" in row for row in by_name.values())


def test_no_configuration_is_an_input_error() -> None:
    with pytest.raises(InputError, match="must divide the 8 chips"):
        plan(small_problem(pins=Pins(pipeline_parallel=3)))


def test_a_spent_time_budget_leaves_rivals_out() -> None:
    found = plan(small_problem(), rivals=("3d", "fsdp"), time_budget_s=1e-9)
    assert not found.search.is_complete
    assert found.left_out == {"3d": "no time left", "fsdp": "no time left"}


def test_what_was_not_searched_to_the_end_may_fit_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    search = planner.search

    def cut_short(*arguments: object, **options: object) -> SearchResult:
        if "keep" not in options:
            options["deadline"] = time.monotonic() - 1
        return search(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(planner, "search", cut_short)
    found = plan(small_problem(pins=Pins(pipeline_parallel=2)), rivals=("3d",))
    assert not found.is_proven
    data = json.loads(json.dumps(plan_data(found)))
    assert data["best"]["proven"]
    (row,) = data["rivals"]
    assert row["fits"] is None
    assert row["proven"] is False
    assert row["search"]["simulated"] == 0


def test_a_rival_that_surely_fits_nowhere() -> None:
    problem = tightened(small_problem("gpt3-13b", global_batch=8, max_micro_batch=1), 20 * GIB)
    data = plan_data(plan(replace(problem, pins=Pins(pipeline_parallel=2)), rivals=("3d",)))
    assert [(row["fits"], row["proven"]) for row in data["rivals"]] == [(False, True)]
    assert data["fastest_method"] is None


def test_the_fastest_method_is_the_one_of_the_shortest_iteration() -> None:
    # One micro-batch at a time through eight stages: whatever does not wait so is faster.
    pins = Pins(pipeline_parallel=4, micro_batch=1, unit=1)
    found = plan(small_problem(pins=pins), rivals=("3d", "fsdp"))
    assert found.best is not None
    times = {name: each.best[0].iteration_s for name, each in found.rivals.items()}
    times["zeropp"] = found.best.iteration_s
    assert found.fastest_method == min(times, key=times.__getitem__) != "zeropp"
    assert plan_data(found)["fastest_method"] == found.fastest_method


def test_once_interrupted_no_other_units_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    search = planner.search

    def interrupted(*arguments: object, **options: object) -> SearchResult:
        result = search(*arguments, **options)  # type: ignore[arg-type]
        result.interrupted = True
        return result

    monkeypatch.setattr(planner, "search", interrupted)
    monkeypatch.setattr(planner, "_OVERTIME_S", -1.0)
    found = plan(small_problem(pins=Pins(pipeline_parallel=4)))
    assert found.unit is not None
    assert [row.unit for row in found.unit.rows] == [found.unit.chosen]


def test_ctrl_c_leaves_the_rest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    search = planner.search

    def interrupted(*arguments: object, **options: object) -> SearchResult:
        result = search(*arguments, **options)  # type: ignore[arg-type]
        result.interrupted = "keep" not in options
        return result

    monkeypatch.setattr(planner, "search", interrupted)
    found = plan(small_problem(pins=Pins(pipeline_parallel=2)), rivals=("3d", "fsdp"))
    assert found.interrupted
    assert found.best is not None
    assert list(found.rivals) == ["3d"]
    assert found.left_out == {"fsdp": "interrupted"}


def test_a_budget_in_time_is_kept() -> None:
    problem = small_problem("gpt3-1.3b", "64xA800-200Gb", global_batch=256, max_micro_batch=16)
    start = time.monotonic()
    found = plan(problem, rivals=("3d",), time_budget_s=1.0)
    assert time.monotonic() - start < 30
    assert isinstance(found.search.num_candidates, int)


def test_progress_tells_the_size_of_the_space() -> None:
    told: list[Progress] = []
    found = plan(small_problem(), progress=lambda _, each: told.append(each))
    assert told[-1].num_candidates == found.search.num_candidates
