"""Constants from files: each has an origin, and the fitted ones are counted."""

import re
from typing import Any

import pydantic
import pytest

from dtk.costmodel.constants import (
    DEFAULT_STACK,
    ChipConstants,
    StackConstants,
    chip_constants,
    count_borrowed,
    count_fitted,
    general_constants,
    stack_constants,
)
from dtk.errors import InputError
from dtk.hardware.catalogue import packaged_catalogue
from tests.costmodel.machines import constants_of, stack_of

CHIPS = [chip.name for chip in packaged_catalogue().chips]


@pytest.mark.parametrize("chip", [*CHIPS, "a chip of one's own"])
def test_every_chip_has_constants(chip: str) -> None:
    constants = chip_constants(chip)
    assert chip in constants.chips or constants.name == "default"
    assert set(constants.origins) == set(ChipConstants.model_fields) - {"name", "chips", "origins"}
    assert all(each.source.strip() for each in constants.origins.values())


def test_no_chip_has_two_sets() -> None:
    sets = {chip_constants(chip).name: chip_constants(chip) for chip in CHIPS}
    named = [chip for each in sets.values() for chip in each.chips]
    assert sorted(named) == sorted(set(named))
    assert set(named) <= set(CHIPS)


def test_only_what_was_fitted_counts() -> None:
    stack = stack_constants(DEFAULT_STACK)
    a100, default = chip_constants("A100-SXM-80GB"), chip_constants("a chip of one's own")
    for each in (a100, default, stack):
        assert set(each.fitted) == {name for name, c in each.origins.items() if c.origin == "fitted"}
    assert count_fitted(a100, stack) == len(a100.fitted) + len(stack.fitted)
    # Nobody has fitted the figures of a chip that nobody has measured.
    assert default.fitted == ()
    assert all(each.origin == "estimate" for each in default.origins.values())


def test_values_that_were_fitted_for_others_are_called_borrowed() -> None:
    a100, megatron, torch = (
        chip_constants("A100-SXM-80GB"),
        stack_constants("megatron"),
        stack_constants("torch-fsdp2"),
    )
    assert a100.borrowed == megatron.borrowed == ()
    for chip in ("a chip of one's own", "V100-SXM-32GB", "RTX-3090"):
        borrower = chip_constants(chip)
        assert set(borrower.borrowed) == set(a100.fitted)
        assert all(getattr(borrower, name) == getattr(a100, name) for name in borrower.borrowed)
        assert {borrower.origins[name].borrowed_from for name in borrower.borrowed} == {"a100"}
    assert set(torch.borrowed) == set(megatron.fitted)
    assert count_borrowed(chip_constants("MI300X"), torch) == 1 + len(megatron.fitted)
    assert chip_constants("MI300X").borrowed == ("kernel_s",)
    assert chip_constants("H100-SXM-96GB").fitted == ("matmul_share",)


@pytest.mark.parametrize("name", ["a100", "default", "h100", "gh200", "b200", "mi300x", "v100", "rtx"])
def test_whatever_equals_a_fitted_value_says_so(name: str) -> None:
    """No chip has a value of the A100's that was fitted, without saying where it comes from."""
    a100 = chip_constants("A100-SXM-80GB")
    each = next(found for chip in [*CHIPS, "none"] if (found := chip_constants(chip)).name == name)
    for constant in a100.fitted:
        if getattr(each, constant) == getattr(a100, constant):
            assert constant in {*each.fitted, *each.borrowed}


def test_what_holds_everywhere_has_origins_too() -> None:
    general = general_constants()
    assert (general.loss_bytes_per_logit, general.usable_memory_share) == (18, 0.95)
    assert general.reserve_bytes == 2 * 2**30
    assert general.fitted == ()
    words = general.origins["loss_bytes_per_logit"].source
    assert sum(map(int, re.findall(r"\((\d+)\)", words))) == general.loss_bytes_per_logit


def test_unknown_software() -> None:
    with pytest.raises(InputError, match=r"stack: unknown training software \(got 'nemo'\); one of megatron"):
        stack_constants("nemo")


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_shares_are_shares(share: float) -> None:
    with pytest.raises(pydantic.ValidationError):
        constants_of(matmul_share=share)


@pytest.mark.parametrize(
    "change", [{"host_layer_s": -1e-6}, {"overlap_data_parallel": 1.5}, {"overlap_tensor_parallel": 1}]
)
def test_times_are_times(change: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        stack_of(**change)


def test_a_constant_without_an_origin_is_refused() -> None:
    values = constants_of().model_dump()
    values["origins"] = {key: value for key, value in values["origins"].items() if key != "kernel_s"}
    with pytest.raises(pydantic.ValidationError, match=r"constants and origins differ \(got 'kernel_s'\)"):
        ChipConstants(**values)
    values = stack_of().model_dump()
    values["origins"]["speed"] = {"origin": "fitted", "source": "somewhere"}
    with pytest.raises(pydantic.ValidationError, match=r"constants and origins differ \(got 'speed'\)"):
        StackConstants(**values)
