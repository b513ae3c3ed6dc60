"""The error family: one line from four parts, and the exit code of each kind."""

import json
import math
from pathlib import Path

import pytest

from dtk import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.DtkError, 70),
        (errors.CheckFailedError, 1),
        (errors.InputError, 2),
        (errors.NotTestableError, 3),
        (errors.RunFailedError, 4),
    ],
)
def test_exit_codes(kind: type[errors.DtkError], code: int) -> None:
    assert kind("m").exit_code == code


def test_every_kind_is_public_and_tested_above() -> None:
    kinds = {errors.DtkError, *errors.DtkError.__subclasses__()}
    assert {kind.__name__ for kind in kinds if kind.__module__ == errors.__name__} == set(errors.__all__)
    assert len({kind.exit_code for kind in kinds}) == len(kinds) == 5


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (errors.InputError("is missing"), "is missing"),
        (errors.InputError("must be even", field="block_size"), "block_size: must be even"),
        (
            errors.InputError("must be even", field="n", value=3, hint="try 4"),
            "n: must be even (got 3); try 4",
        ),
        (errors.InputError("must be positive", value=0), "must be positive (got 0)"),
        (errors.InputError("unknown model", value="x y"), "unknown model (got 'x y')"),
    ],
)
def test_one_line_from_the_parts(error: errors.DtkError, line: str) -> None:
    assert str(error) == line


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "text", Path("a/b"), [1, 2], {"a": Path()}, object()])
def test_every_value_can_be_written_as_json(value: object) -> None:
    parts = errors.InputError("m", field="f", value=value, hint="h").to_dict()
    assert set(json.loads(json.dumps(parts))) == {"message", "field", "value", "hint"}


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, math.nan, [math.nan], pytest.param(10**5000, id="long")]
)
def test_a_figure_that_json_does_not_know_becomes_text(value: object) -> None:
    parts = errors.InputError("m", value=value).to_dict()
    assert isinstance(json.loads(json.dumps(parts, allow_nan=False))["value"], str)


def _alias_bomb(depth: int) -> list[object]:
    bomb: list[object] = ["x"] * 10
    for _ in range(depth):
        bomb = [bomb] * 10
    return bomb


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 10**6, id="text"),
        pytest.param(list(range(10**6)), id="list"),
        pytest.param(_alias_bomb(30), id="bomb"),
        pytest.param({"k" * 999: "v" * 999}, id="mapping"),
        pytest.param(10**5000, id="integer"),
    ],
)
def test_a_value_of_any_size_makes_a_short_line(value: object) -> None:
    error = errors.InputError("is too much", value=value)
    assert len(str(error)) < 250
    assert len(json.dumps(error.to_dict())) < 2500


def test_a_value_does_not_break_the_line() -> None:
    assert str(errors.InputError("m", value="a\nb\x1b[31m")) == r"m (got 'a\nb\x1b[31m')"


def test_input_errors_are_value_errors_for_library_users() -> None:
    with pytest.raises(ValueError, match="must be even"):
        raise errors.InputError("must be even")
