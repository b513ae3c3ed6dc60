"""Reports on one schedule: figures of the papers, the bound, files, warnings."""

import pytest

from dtk.errors import InputError
from dtk.pipeline.generators.registry import SCHEDULES, make_schedule
from dtk.pipeline.lowering import add_parameters, add_transfers
from dtk.pipeline.text import schedule_to_text
from dtk.zeropp.config import ZeroppConfig
from dtk.zeropp.report import ScheduleReport, report_file, report_schedule

GOOD = "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"


def warned(report: ScheduleReport) -> str:
    return "\n".join(report.warnings)


def test_zeropp_of_the_paper_file() -> None:
    report = report_schedule(ZeroppConfig(pp=4, chunks=2, unit=4, micro_batches=4))
    simulation = report.simulation
    assert (simulation.makespan_ns, simulation.idle_total_ns) == (27 * 10**9, (3 * 10**9,) * 4)
    assert (simulation.gathers, simulation.reduce_scatters) == ((3,) * 4, (2,) * 4)
    assert (report.lower_bound_ns, report.gap, report.warnings) == (27 * 10**9, 0.0, ())


@pytest.mark.parametrize("extra", ["gather_time_s", "reduce_time_s", "optimizer_time_s", "transfer_time_s"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_nothing_beats_the_bound(name: str, extra: str) -> None:
    base = ZeroppConfig(schedule=name, pp=3, micro_batches=5, weight_grad_time_s=(0.5,))
    costly = base.model_copy(update={extra: (0.75,)})
    without, with_cost = report_schedule(base), report_schedule(costly)
    assert 0 < without.lower_bound_ns <= without.simulation.makespan_ns
    assert without.lower_bound_ns < with_cost.lower_bound_ns <= with_cost.simulation.makespan_ns


def test_the_bound_counts_gather_reduction_and_step_of_a_lone_rank_exactly() -> None:
    config = ZeroppConfig(
        schedule="1f1b", pp=1, micro_batches=3, gather_time_s=(2,), reduce_time_s=(3,), optimizer_time_s=(5,)
    )
    report = report_schedule(config)
    assert report.simulation.makespan_ns == report.lower_bound_ns == (2 + 9 + 3 + 5) * 10**9


def test_costs_as_torch_has_them() -> None:
    # Only where the first rank holds weight gradients of stage 0 back can they come at the wrong time.
    config = ZeroppConfig(pp=2, micro_batches=4, weight_order="fifo", transfer_time_s=(0.5,))
    ours = report_schedule(config)
    torchs = report_schedule(config.model_copy(update={"torch_stage_zero": True}))
    assert torchs.costs.input_grad_ns == (0, *(10**9,) * 3)
    assert torchs.costs.weight_grad_ns == (2 * 10**9, *(10**9,) * 3)
    assert torchs.simulation.compute_ns == ours.simulation.compute_ns
    assert (ours.simulation.makespan_ns, torchs.simulation.makespan_ns) == (25_500_000_000, 26_000_000_000)


def test_a_file_says_the_same_as_the_schedule_it_holds() -> None:
    config = ZeroppConfig(schedule="zeropp", pp=2, chunks=2, unit=2, micro_batches=4, transfer_time_s=(0.25,))
    schedule = make_schedule("zeropp", num_ranks=2, num_chunks=2, num_microbatches=4, unit=2)
    named = report_schedule(config)
    lowered = add_parameters(schedule)
    for text in (
        schedule_to_text(lowered),
        schedule_to_text(add_transfers(lowered)),
    ):
        assert report_file(config, text, "file").simulation == named.simulation
    plain = report_file(config.model_copy(update={"reduce": "end"}), schedule_to_text(schedule), "file")
    assert plain.simulation.idle_ns == named.simulation.idle_ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no row"),
        (GOOD.replace(",1W1", ""), "1W1 is missing"),
        (GOOD.replace("1W1", "1W0"), "1W0"),
        (GOOD.replace("1F1,1I1", "1I1,1F1"), "1I1"),
        (GOOD.replace("0W1", "1W1"), "stage 1"),
        (GOOD.replace("0F1", "0X1"), "row 1, column 2"),
        ("0F0,0F1,0I1,0I0,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n".replace("1I0,1F1,1I1", "1F1,1I0,1I1"), None),
        ("0F0,0I0,0W0,0F1,0I1,0W1\n1F0,1F1,1I0,1I1,1W0,1W1\n", "wait"),
        (GOOD.replace("0I0", "0I0,0UNSHARD"), "UNSHARD|gathered|RESHARD"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str | None) -> None:
    config = ZeroppConfig()
    if message is None:
        assert report_file(config, text, "file").simulation.makespan_ns > 0
        return
    with pytest.raises(InputError, match=message):
        report_file(config, text, "file")


def test_warnings() -> None:
    base = ZeroppConfig(pp=4, chunks=2, unit=8, micro_batches=8)
    assert report_schedule(base).warnings == ()
    small = report_schedule(base.model_copy(update={"unit": 3}))
    assert "a unit of 3 micro-batches is shorter than the pipeline of 4 ranks" in warned(small)
    few = report_schedule(base.model_copy(update={"micro_batches": 2}))
    assert "2 micro-batches do not fill a pipeline of 4 ranks" in warned(few)
    unused = report_schedule(base.model_copy(update={"schedule": "zb-v"}))
    assert warned(unused) == "zb-v does not use unit=8"
    slow = report_schedule(base.model_copy(update={"transfer_time_s": (1.5,)}))
    assert "stage 0's activation takes longer to send than to compute (and 6 more" in warned(slow)
    slower = report_schedule(base.model_copy(update={"transfer_time_s": (2.5,)}))
    assert "(and 13 more such messages)" in warned(slower)


def test_settings_without_effect_are_told() -> None:
    listed = schedule_to_text(
        add_parameters(make_schedule("1f1b", num_ranks=2, num_chunks=1, num_microbatches=2))
    )
    config = ZeroppConfig(unit=3, split=False, lookahead=2)
    assert report_file(config, listed, "s.csv").warnings == (
        "s.csv does not use unit=3, split=False, lookahead=2",
    )
    assert report_file(config, GOOD, "s.csv").warnings == ("s.csv does not use unit=3, split=False",)
    assert report_schedule(ZeroppConfig(unit=8, memory_chunks=4)).warnings == (
        "zeropp does not use memory_chunks=4",
    )


@pytest.mark.native
def test_the_search_uses_its_own_settings_only() -> None:
    config = ZeroppConfig(schedule="optimal", pp=2, micro_batches=2, memory_chunks=3, effort=1000, unit=4)
    report = report_schedule(config)
    assert (report.warnings, report.memory_chunks) == (("optimal does not use unit=4",), 3)


@pytest.mark.native
def test_nothing_is_called_proven_that_gathers_lengthen() -> None:
    base = ZeroppConfig(schedule="optimal", pp=4, chunks=1, micro_batches=8, effort=1_000_000)
    free, gathered = (
        report_schedule(base.model_copy(update={"gather_time_s": (seconds,)})) for seconds in (0.0, 0.5)
    )
    assert (free.proven, free.gap_within_memory) == (True, 0.0)
    assert gathered.search is not None
    assert gathered.search.proven
    assert not gathered.proven
    assert gathered.gap_within_memory is not None
    assert gathered.gap_within_memory > 0
    assert report_schedule(base.model_copy(update={"schedule": "1f1b"})).gap_within_memory is None
