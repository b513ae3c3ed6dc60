"""Schedules side by side: the same work for all, units of one chunk, and the searched one never worse."""

from fractions import Fraction

import pytest

from dtk.errors import InputError, RunFailedError
from dtk.pipeline.generators.registry import SCHEDULES
from dtk.zeropp.comparison import ComparedSchedule, Comparison, compare_schedules
from dtk.zeropp.config import ZeroppConfig

NAMED = tuple(SCHEDULES)
EFFORT = 3_000_000


def by_name(comparison: Comparison) -> dict[str, ComparedSchedule]:
    return {row.name: row for row in comparison.rows}


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_all_compute_the_same(chunks: int) -> None:
    config = ZeroppConfig(schedules=NAMED, pp=3, chunks=chunks, micro_batches=6, unit=3)
    comparison = compare_schedules(config)
    assert [row.name for row in comparison.rows] == list(NAMED)
    for row in comparison.rows:
        assert row.report.simulation.compute_ns == (chunks * 6 * 3 * 10**9,) * 3
        assert row.num_chunks == chunks or not SCHEDULES[row.name].takes(chunks)
        assert (row.note != "") == (row.num_chunks != chunks or row.name == "dualpipe-v")
        assert comparison.lower_bound_ns <= row.report.simulation.makespan_ns


def test_counts_are_in_chunks_of_the_given_size() -> None:
    comparison = compare_schedules(ZeroppConfig(schedules=NAMED, pp=4, chunks=2, micro_batches=8, unit=4))
    rows = by_name(comparison)
    peaks = {name: int(row.peak_activation_chunks) for name, row in rows.items()}
    # Of 1F1B P * V, of GPipe M * V, of ZB-H2 (2P - 1) * V; of ZeroPP with U = P as 1F1B.
    assert (peaks["1f1b"], peaks["gpipe"], peaks["zb-h2"], peaks["zeropp"]) == (8, 16, 14, 8)
    assert [int(rows[name].gathered_chunks) for name in ("1f1b", "zeropp")] == [2, 5]
    assert [int(rows[name].reduced_chunks) for name in ("1f1b", "zeropp")] == [2, 4]
    assert "takes 2 chunks as one stage" in rows["1f1b"].note
    assert "holds 2 gathered chunks at once" in rows["1f1b"].note


def test_smaller_chunks_count_as_parts() -> None:
    rows = by_name(compare_schedules(ZeroppConfig(schedules=("zb-v",), pp=2, chunks=1, micro_batches=4)))
    assert (rows["zb-v"].num_chunks, rows["zb-v"].scale) == (2, Fraction(1, 2))
    assert rows["zb-v"].peak_activation_chunks == 2
    assert rows["zb-v"].report.costs.forward_ns == (5 * 10**8,) * 4


def test_torchs_stage_zero_is_that_of_the_new_cut() -> None:
    config = ZeroppConfig(schedules=("zb-h2",), pp=2, chunks=2, micro_batches=4, torch_stage_zero=True)
    costs = compare_schedules(config).rows[0].report.costs
    assert (costs.input_grad_ns, costs.weight_grad_ns) == ((0, 2 * 10**9), (4 * 10**9, 2 * 10**9))


def test_gathered_chunks_count_in_the_given_size_too() -> None:
    config = ZeroppConfig(schedules=("1f1b", "zb-h1"), pp=2, chunks=2, micro_batches=4, resident_chunks=2)
    rows = by_name(compare_schedules(config))
    assert rows["zb-h1"].gathered_chunks == rows["1f1b"].gathered_chunks == 2
    assert "gathered" not in rows["1f1b"].note


@pytest.mark.native
@pytest.mark.parametrize("unit", [2, 3, 6])
def test_the_searched_schedule_is_not_worse_than_what_fits(unit: int) -> None:
    config = ZeroppConfig(
        pp=3,
        chunks=2,
        micro_batches=6,
        unit=unit,
        forward_time_s=(0.7,),
        transfer_time_s=(0.1,),
        effort=EFFORT,
    )
    comparison = compare_schedules(config)
    rows = by_name(comparison)
    best = rows["optimal"].report
    assert comparison.rows[-1] is rows["optimal"]
    assert rows["optimal"].peak_activation_chunks <= 6
    assert best.search is not None
    assert best.search.makespan_ns == best.simulation.makespan_ns
    for row in comparison.rows:
        if row.num_chunks == 2 and row.peak_activation_chunks <= 6:
            assert best.simulation.makespan_ns <= row.report.simulation.makespan_ns
    assert comparison.against_best(rows["optimal"]) >= 1
    assert comparison.gap(rows["optimal"]) >= 0


@pytest.mark.native
@pytest.mark.parametrize("unit", [4, 8])
@pytest.mark.parametrize("memory_chunks", [8, 16])
def test_nor_where_gathers_and_reductions_take_time(unit: int, memory_chunks: int) -> None:
    config = ZeroppConfig(
        chunks=2,
        unit=unit,
        gather_time_s=(1.0,),
        reduce_time_s=(0.5,),
        memory_chunks=memory_chunks,
        effort=EFFORT,
    )
    rows = by_name(compare_schedules(config))
    best = rows["optimal"].report
    assert rows["optimal"].peak_activation_chunks <= memory_chunks
    fitting = [
        row.report.simulation.makespan_ns
        for row in rows.values()
        if row.num_chunks == 2 and row.peak_activation_chunks <= memory_chunks and row.name != "dualpipe-v"
    ]
    assert best.simulation.makespan_ns <= min(fitting)
    assert best.schedule.name == "optimal"
    assert best.planning_note.startswith("planned as if gathers")
    if unit == 8 and memory_chunks == 16:
        assert best.simulation == rows["zeropp"].report.simulation
        assert best.schedule.settings["order_of"] == "zeropp"
        assert best.planning_note.endswith("the order of zeropp is shorter and was taken")


@pytest.mark.native
def test_a_memory_that_nothing_meets_is_refused_before_anything_else() -> None:
    told: list[str] = []
    config = ZeroppConfig(pp=2, chunks=3, micro_batches=4, memory_chunks=2)
    with pytest.raises(InputError, match="so no schedule meets the limit"):
        compare_schedules(config, progress=told.append)
    assert told == []


def test_without_the_compiled_search_the_others_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtk.pipeline.optimal.search.native_module", lambda: None)
    config = ZeroppConfig(schedules=("1f1b", "optimal"), pp=2, chunks=1, micro_batches=2)
    comparison = compare_schedules(config)
    assert [row.name for row in comparison.rows] == ["1f1b"]
    assert "compiled code" in comparison.left_out["optimal"]
    with pytest.raises(RunFailedError, match="compiled code"):
        compare_schedules(config.model_copy(update={"schedules": ("optimal",)}))
