"""The claims about the cost model fail where constants, measurements or bytes are off."""

import pytest

import dtk.pipeline.iteration.published as published
from dtk.costmodel.constants import chip_constants
from dtk.pipeline.iteration.accuracy import memory
from tests.repro.test_checks import FAST, SHIPPED, observe, passes

OURS = [claim for claim in SHIPPED.values() if claim.paper == "costmodel"]


def test_all_of_them_are_quick_and_fast() -> None:
    assert len(OURS) == 6
    assert all(claim.quick and claim in FAST and claim.basis == "simulated" for claim in OURS)


@pytest.mark.parametrize(
    ("claim_id", "name", "factor"),
    [
        ("costmodel.vtrain", "matmul_share", 0.9),
        ("costmodel.recomputation", "matmul_share", 0.9),
        ("costmodel.two-chips", "network_share", 0.5),
        ("costmodel.layout-choice", "fabric_share", 0.2),
    ],
)
def test_other_constants_fail(
    claim_id: str, name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    chip = chip_constants("A100-SXM-80GB")
    moved = chip.model_copy(update={name: getattr(chip, name) * factor})
    monkeypatch.setattr(published, "chip_constants", lambda _: moved)
    assert not passes(claim_id, observe(claim_id))


def test_activations_that_are_counted_twice_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = memory.MemoryComparison

    def doubled(run: str, published_bytes: int, estimated_bytes: int) -> memory.MemoryComparison:
        return comparison(run, published_bytes, 2 * estimated_bytes)

    monkeypatch.setattr(memory, "MemoryComparison", doubled)
    assert not passes("costmodel.activation-bytes", observe("costmodel.activation-bytes"))


def test_the_details_say_what_the_figures_rest_on() -> None:
    observed = observe("costmodel.vtrain")
    assert observed.details["runs"] == {"vtrain": 27, "vtrain-175b": 11}
    assert set(observed.details["fitted constants"].values()) == {13}
    assert len(observed.details["more than a tenth off"]) == 4
    choice = observe("costmodel.layout-choice").details
    assert choice["layouts"] == {"3.6B": 26, "18.4B": 15, "175B": 21}
    assert choice["Calculon"]["tau"]["175B"] == 0.66
