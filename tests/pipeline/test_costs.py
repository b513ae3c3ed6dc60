"""Costs by stage: what may be given, and that nothing else comes through."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtk.errors import InputError
from dtk.pipeline.costs import MAX_BYTES, MAX_TIME_NS, StageCosts

TIMES = {"forward_ns": 3, "input_grad_ns": 2, "weight_grad_ns": 1}


def test_one_value_for_all_or_one_a_stage() -> None:
    costs = StageCosts.of(2, **TIMES, optimizer_ns=[5, 6])
    assert (costs.forward_ns, costs.optimizer_ns, costs.unshard_ns) == ((3, 3), (5, 6), (0, 0))
    assert costs.num_stages == 2


def test_numpy_integers_become_integers() -> None:
    measured: Any = {
        "forward_ns": np.array([4, 5]), "input_grad_ns": [np.int32(2), 2], "weight_grad_ns": np.int64(1),
    }  # fmt: skip
    costs = StageCosts.of(2, **measured)
    assert (costs.forward_ns, costs.input_grad_ns, costs.weight_grad_ns) == ((4, 5), (2, 2), (1, 1))
    assert {type(one) for one in (*costs.forward_ns, *costs.input_grad_ns, *costs.weight_grad_ns)} == {int}


@pytest.mark.parametrize(
    "value", [-1, 1.0, 1.5, float("nan"), True, None, "12", b"12", "x", MAX_TIME_NS + 1, [1, "2"], [1, None]]
)
def test_a_time_that_is_none(value: Any) -> None:
    with pytest.raises(InputError, match=r"^forward_ns: must be a whole number from 0 to"):
        StageCosts.of(2, **TIMES | {"forward_ns": value})


def test_limits_are_a_quarter_of_an_hour_and_a_terabyte() -> None:
    costs = StageCosts.of(1, **TIMES | {"forward_ns": MAX_TIME_NS}, parameter_bytes=MAX_BYTES)
    assert costs.forward_ns[0] > 15 * 60 * 10**9
    assert costs.parameter_bytes[0] > 10**12
    with pytest.raises(InputError, match=r"^parameter_bytes: must be a whole number from 0 to"):
        StageCosts.of(1, **TIMES, parameter_bytes=MAX_BYTES + 1)


def test_no_stages_and_fewer() -> None:
    nothing = StageCosts.of(0, **TIMES)
    assert (nothing.num_stages, nothing.as_torch_splits()) == (0, nothing)
    with pytest.raises(InputError, match=r"^num_stages: must be 0 or more"):
        StageCosts.of(-1, **TIMES)


def test_another_number_of_values_and_an_unknown_cost() -> None:
    with pytest.raises(InputError, match=r"^unshard_ns: has 3 values for 2 stages"):
        StageCosts.of(2, **TIMES, unshard_ns=[1, 2, 3])
    with pytest.raises(InputError, match=r"^colour: not a cost of a stage; one of forward_ns"):
        StageCosts.of(2, **TIMES, colour=1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"forward_ns": (-5, 1)}, "forward_ns: must be a whole number"),
        ({"optimizer_ns": (1,)}, "optimizer_ns: has 1 values for 2 stages"),
        ({"forward_ns": ()}, "input_grad_ns: has 2 values for 0 stages"),
    ],
)
def test_changed_costs_are_checked_too(changed: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        replace(StageCosts.of(2, **TIMES), **changed)


def test_torch_splits() -> None:
    costs = StageCosts.of(2, **TIMES, activation_bytes=7, weight_grad_bytes=4).as_torch_splits()
    assert (costs.input_grad_ns, costs.weight_grad_ns) == ((0, 2), (3, 1))
    assert (costs.activation_bytes, costs.weight_grad_bytes) == ((7, 7), (7, 4))
