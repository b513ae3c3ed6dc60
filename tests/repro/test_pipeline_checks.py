"""The checks of ZeroPP, zero-bubble pipelines and FP4: off where a schedule, a count or a format is off.

That they hold as shipped, with any seed, `test_checks` says of all fast claims.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import dtk.pipeline.generators.registry  # before any generator is replaced
import dtk.pipeline.generators.zb_h1
import dtk.pipeline.generators.zb_h2
import dtk.pipeline.generators.zeropp
import dtk.pipeline.lowering
import dtk.pipeline.simulate
import dtk.simulation.native
import dtk.zeropp.formulas
import dtk_kernels.quant
from dtk.errors import NotTestableError
from tests.pipeline.generators.test_zero_bubble import PROFILES
from tests.pipeline.simulate.test_published import GOLDEN
from tests.repro.test_checks import FAST, SHIPPED, observe, passes

OURS = [claim for claim in SHIPPED.values() if claim.paper in ("zeropp", "fp4") and claim.check is not None]


def test_all_of_them_are_quick_and_fast() -> None:
    assert len(OURS) == 8
    assert all(claim.quick and claim in FAST for claim in OURS)


def test_the_slots_are_those_of_the_golden_file() -> None:
    golden = (GOLDEN / "zeropp_p4_v2_u4.txt").read_text(encoding="utf-8").splitlines()
    claim = SHIPPED["zeropp.worked-example"]
    assert claim.parameters["slots"] == [line.partition(" ")[2] for line in golden]
    drawn = observe("zeropp.worked-example").details
    assert [f"r{rank} {drawn[f'rank {rank}']}" for rank in range(4)] == golden


@pytest.mark.parametrize(("old", "new"), [("F00 F01", "F01 F00"), ("W03", "W03 ..."), ("B10", "I10")])
def test_other_slots_are_counted(old: str, new: str) -> None:
    slots: Any = SHIPPED["zeropp.worked-example"].parameters["slots"]
    changed = [slots[0].replace(old, new), *slots[1:]]
    observed = observe("zeropp.worked-example", slots=changed)
    assert not passes("zeropp.worked-example", observed)
    value: Any = observed.value
    assert value["slots that differ"] >= 1


def test_a_missing_rank_is_counted() -> None:
    slots: Any = SHIPPED["zeropp.worked-example"].parameters["slots"]
    value: Any = observe("zeropp.worked-example", slots=slots[:3]).value
    assert value["slots that differ"] == 27


@pytest.mark.parametrize("claim_id", ["zeropp.worked-example", "zeropp.formulas"])
def test_an_order_without_the_split_is_found(claim_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = dtk.pipeline.generators.zeropp.zeropp

    def posing_as_split(*sizes: int, unit: int) -> Any:
        schedule = original(*sizes, unit=unit, split=False)
        return dataclasses.replace(schedule, settings={**schedule.settings, "split": True})

    monkeypatch.setattr(dtk.pipeline.generators.zeropp, "zeropp", posing_as_split)
    assert not passes(claim_id, observe(claim_id))


def test_formulas_that_are_never_asked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = dtk.zeropp.formulas.check_formulas

    def without_peaks(*arguments: Any) -> Any:
        return [check for check in original(*arguments) if check.quantity == "idle_ns"]

    monkeypatch.setattr(dtk.zeropp.formulas, "check_formulas", without_peaks)
    assert not passes("zeropp.formulas", observe("zeropp.formulas"))


@pytest.mark.parametrize("claim_id", ["zeropp.unit-traffic", "zeropp.unit-condition"])
def test_reductions_of_every_micro_batch_are_found(claim_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = dtk.pipeline.lowering.add_parameters
    monkeypatch.setattr(
        dtk.pipeline.lowering, "add_parameters", lambda schedule: original(schedule, reduce="microbatch")
    )
    # With a reduction for each micro-batch, units save less traffic.
    assert not passes(claim_id, observe(claim_id))


@pytest.mark.parametrize(
    ("hidden", "tokens", "sequences"), [(4096, 2048, 1), (4096, 2048, 2), (1024, 512, 1), (5120, 300, 3)]
)
def test_the_smallest_unit_is_that_of_the_condition(hidden: int, tokens: int, sequences: int) -> None:
    sizes = [{"hidden": hidden, "tokens": tokens, "sequences": sequences}]
    value: Any = observe("zeropp.unit-condition", sizes=sizes).value
    [unit] = value.values()
    assert 2 * tokens * unit * sequences > 9 * hidden >= 2 * tokens * (unit - 1) * sequences


def test_the_profiles_are_those_of_the_tables() -> None:
    rows: Any = SHIPPED["zeropp.bubble-rates"].parameters["profiles"]
    ours = [
        (
            row["ranks"],
            row["chunks"],
            row["microbatches"],
            *row["times"].values(),
            *row["bubble_rates"].values(),
        )
        for row in rows
    ]
    tables = [
        (*size, microbatches, *times, *rates)
        for size, profiles in PROFILES.items()
        for microbatches, times, rates in profiles
    ]
    assert ours == tables


@pytest.mark.parametrize("generator", [dtk.pipeline.generators.zb_h1, dtk.pipeline.generators.zb_h2])
def test_a_worse_schedule_is_found(generator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = generator.__name__.rpartition(".")[2]
    monkeypatch.setattr(generator, name, _one_f_one_b_of)
    assert not passes("zeropp.bubble-rates", observe("zeropp.bubble-rates"))


def _one_f_one_b_of(num_ranks: int, num_microbatches: int) -> Any:
    from dtk.pipeline.generators.one_f_one_b import one_f_one_b

    return one_f_one_b(num_ranks, num_microbatches)


def test_a_schedule_above_the_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtk.pipeline.generators.zb_h1, "zb_h1", _one_f_one_b_of)
    value: Any = observe("zeropp.zb-h1-best").value
    assert value["above the bound (%)"] > 10
    assert not passes("zeropp.zb-h1-best", observe("zeropp.zb-h1-best"))


def test_more_memory_than_that_of_1f1b_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtk.pipeline.generators.zb_h1, "zb_h1", dtk.pipeline.generators.zb_h2.zb_h2)
    value: Any = observe("zeropp.zb-h1-best").value
    assert value["peak activations of a rank"] == 31
    assert not passes("zeropp.zb-h1-best", observe("zeropp.zb-h1-best"))


def test_too_little_search_is_found() -> None:
    tight = {"num_ranks": 4, "num_microbatches": 8, "memory": 2, "effort": 1}
    assert observe("zeropp.best-at-twice-memory", **tight).value != 0


def test_without_the_compiled_search_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtk.simulation.native, "native_module", lambda: None)
    monkeypatch.setattr(dtk.simulation.native, "why_no_native_module", lambda: "none is here")
    with pytest.raises(NotTestableError, match="is compiled code, and none is here"):
        observe("zeropp.best-at-twice-memory")


def truncated(quantize: Callable[..., Any], x: Any, format: str, **how: Any) -> Any:
    return quantize(x * 0.98, format, **how)


def other_scales(quantize: Callable[..., Any], x: Any, format: str, **how: Any) -> Any:
    if how["scale_format"] == "e8m0_rceil":
        how["scale_format"] = "e8m0_ceil"
    return quantize(x, format, **how)


def larger_blocks(quantize: Callable[..., Any], x: Any, format: str, **how: Any) -> Any:
    if how["block"] == (1, 64):
        how["block"] = (1, 128)
    return quantize(x, format, **how)


@pytest.mark.parametrize("mistake", [truncated, other_scales, larger_blocks])
def test_a_wrong_quantiser_is_found(mistake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    quantize = dtk_kernels.quant.fake_quantize
    monkeypatch.setattr(
        dtk_kernels.quant, "fake_quantize", lambda x, format, **how: mistake(quantize, x, format, **how)
    )
    assert not passes("fp4.gaussian-error", observe("fp4.gaussian-error", rows=512))


def test_the_table_orders_formats_as_it_should() -> None:
    schemes: Any = SHIPPED["fp4.gaussian-error"].parameters["schemes"]
    errors = {scheme["name"]: scheme["error"] for scheme in schemes}
    blocks = [errors[f"FP4 1x{size}"] for size in (16, 32, 64, 128, 512)]
    assert blocks == sorted(blocks)
    assert 5 * errors["E5M2 1x128"] > 0.01 > 5 * errors["E4M3 1x128"]
    assert errors["NVFP4"] < 2 ** (-2 * 3.38)  # the effective bits that are published for it
