"""Settings of the kernel benchmark: what they accept, and the one clear line about what they do not."""

from typing import Any

import pytest

from dtk.configuration import validate
from dtk.errors import InputError
from dtk.scout.bench.config import KernelBenchConfig


def test_lists_read_as_the_command_line_writes_them() -> None:
    config = validate(
        KernelBenchConfig, {"group_sizes": "1, 3,16", "dtypes": "bf16", "time_budget_s": "2min"}
    )
    assert (config.group_sizes, config.dtypes, config.time_budget_s) == ((1, 3, 16), ("bf16",), 120.0)


def test_a_single_value_is_a_list_of_one() -> None:
    config = validate(KernelBenchConfig, {"group_sizes": 4, "dtypes": "fp16"})
    assert (config.group_sizes, config.dtypes) == ((4,), ("fp16",))


@pytest.mark.parametrize(
    ("values", "blocks", "context"),
    [({}, 64, 512), ({"selected_tokens": 33, "context_tokens": 65}, 2, 3), ({"block_size": 1}, 2048, 16384)],
)
def test_partial_blocks_count(values: dict[str, Any], blocks: int, context: int) -> None:
    config = KernelBenchConfig(**values)
    assert (config.selected_blocks, config.context_blocks) == (blocks, context)


def test_the_time_is_shared_by_rows_and_series() -> None:
    assert KernelBenchConfig(time_budget_s=60).time_budget_of_part_s == 10
    assert KernelBenchConfig(time_budget_s=60, dtypes="fp32", scaling=True).time_budget_of_part_s == 15


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_sizes": "0"}, "group_sizes.0: must be greater than or equal to 1"),
        ({"group_sizes": "1,17"}, "group_sizes.1: must be less than or equal to 16"),
        ({"group_sizes": "1,x"}, "group_sizes.1: must be a valid integer"),
        ({"group_sizes": "4,4"}, "group_sizes: names a value twice"),
        ({"group_sizes": ""}, "group_sizes.0: must be a valid integer"),
        ({"group_sizes": True}, "group_sizes: must be a number"),
        ({"group_sizes": 17}, "group_sizes.0: must be less than or equal to 16"),
        ({"dtypes": "fp8"}, "dtypes.0: must be 'fp32', 'fp16' or 'bf16'"),
        ({"dtypes": []}, "dtypes"),
        ({"batch": 0}, "batch: must be greater than or equal to 1"),
        ({"time_budget_s": "5"}, "time_budget_s: needs a unit"),
        (
            {"selected_tokens": 100, "context_tokens": 99},
            "selected_tokens=100 is more than context_tokens=99",
        ),
        ({"tokens": 1}, "tokens: unknown key"),
    ],
)
def test_refusals(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        validate(KernelBenchConfig, values)
    assert message in str(refused.value)
