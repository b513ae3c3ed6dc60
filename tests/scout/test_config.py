import pydantic
import pytest

from dtk.scout.config import ScoutConfig


def test_defaults_are_the_papers_where_it_states_them() -> None:
    config = ScoutConfig()
    assert (config.budget_tokens, config.block_size, config.budget_blocks) == (2048, 32, 64)
    assert config.device_scope == "resident"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"block_size": 0}, "greater than or equal to 1"),
        ({"budget_tokens": 0}, "greater than or equal to 1"),
        ({"budget_tokens": 100, "block_size": 32}, "budget_tokens=100 is not a multiple of block_size=32"),
        (
            {"budget_tokens": 32, "block_size": 32},
            "budget_tokens=32 is below the forced blocks.* at least 64",
        ),
        ({"budget_tokens": 128, "sink_blocks": 4}, "at least 160"),
        ({"recall_interval": 0}, "greater than or equal to 1"),
        ({"recall_interval": (3, 0)}, "greater than or equal to 1"),
        ({"dense_layers": -1}, "greater than or equal to 0"),
        ({"device_scope": "all"}, "'resident' or 'selected'"),
        ({"budget": 3}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict, message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        ScoutConfig(**values)


def test_budget_of_exactly_the_forced_blocks_is_allowed() -> None:
    assert ScoutConfig(budget_tokens=64, block_size=32).budget_blocks == 2


def test_frozen() -> None:
    with pytest.raises(pydantic.ValidationError):
        ScoutConfig().budget_tokens = 1  # type: ignore[misc]
