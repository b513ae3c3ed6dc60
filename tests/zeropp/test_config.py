"""The settings of the pipeline commands: lists of times, names, sizes that make sense."""

from typing import Any

import pytest

from dtk.configuration import validate
from dtk.errors import InputError
from dtk.zeropp.config import SCHEDULE_NAMES, ZeroppConfig


def test_times_become_costs_in_nanoseconds() -> None:
    config = validate(
        ZeroppConfig,
        {"forward_time_s": "18.522ms", "input_grad_time_s": "1s, 2s,3us,4ns", "transfer_time_s": ["601us"]},
    )
    costs = config.costs(4)
    assert costs.forward_ns == (18_522_000,) * 4
    assert costs.input_grad_ns == (10**9, 2 * 10**9, 3000, 4)
    assert costs.weight_grad_ns == (10**9,) * 4
    assert costs.activation_transfer_ns == costs.gradient_transfer_ns == (601_000,) * 4
    assert not any((*costs.unshard_ns, *costs.reduce_grad_ns, *costs.optimizer_ns))


def test_settings_read_back() -> None:
    config = validate(ZeroppConfig, {"forward_time_s": "1ms,2ms", "schedules": "zeropp,1f1b", "unit": 3})
    assert validate(ZeroppConfig, config.model_dump(mode="json")) == config


def test_all_names_every_schedule() -> None:
    assert validate(ZeroppConfig, {"schedules": "all"}).schedules == SCHEDULE_NAMES
    assert validate(ZeroppConfig, {"schedules": "zb-v"}).schedules == ("zb-v",)


def test_chunks_suit_the_schedule_unless_given() -> None:
    config = ZeroppConfig()
    chosen = {name: config.num_chunks_of(name) for name in SCHEDULE_NAMES}
    assert {name for name, chunks in chosen.items() if chunks == 1} == {"gpipe", "1f1b", "zb-h2"}
    assert set(chosen.values()) == {1, 2}
    assert ZeroppConfig(chunks=3).num_chunks_of("1f1b") == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"forward_time_s": "-1ms"}, "must not be negative"),
        ({"forward_time_s": -1}, "must not be negative"),
        ({"forward_time_s": "1s,,2s"}, "needs|must be a number"),
        ({"forward_time_s": []}, "at least 1 item"),
        ({"forward_time_s": "1h"}, "must be 1099 s at most"),
        ({"optimizer_time_s": "0.5ns"}, "is not a whole number of nanoseconds"),
        ({"schedule": "2f2b"}, "no such schedule"),
        ({"schedules": "1f1b,1f1b"}, "names a schedule twice"),
        ({"schedules": "1f1b,all"}, "there is no schedule 'all'"),
        ({"unit": 0}, "greater than or equal to 1"),
        ({"unit": True}, "must be a number"),
        ({"reduce": "never"}, "'unit', 'microbatch' or 'end'"),
        ({"pp": 10**9}, "more than 20000000 actions"),
        ({"micro_batches": 10**30}, "more than 20000000 actions"),
    ],
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate(ZeroppConfig, values)


def test_a_list_of_times_has_one_value_a_stage() -> None:
    config = validate(ZeroppConfig, {"weight_grad_time_s": "1s,2s,3s"})
    with pytest.raises(InputError, match="weight_grad_time_s: has 3 values for 4 stages"):
        config.costs(4)
