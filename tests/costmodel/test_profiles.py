"""Measured times of layers: lines between micro-batches against numpy, refusals, files, split passes."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtk.costmodel.layer import PartTime
from dtk.costmodel.measurements import sailor_layer_profiles
from dtk.costmodel.profile_files import load_profiles
from dtk.costmodel.profiles import (
    Conditions,
    MeasuredPart,
    ModelProfile,
    find_profile,
    measured_part,
    published_profiles,
)
from dtk.errors import InputError
from dtk.workload import load_shape

SHAPE = load_shape("llama3-8b")
CONDITIONS = Conditions(
    shape=SHAPE, chip="H100-SXM-80GB", precision="bf16", tensor_parallel=2, sequence_tokens=4096
)
PUBLISHED = published_profiles(sailor_layer_profiles())

SECONDS = st.floats(1e-6, 10.0)


def row(micro_batch: int, forward_s: float = 1.0, backward_s: float = 2.0, **others: Any) -> MeasuredPart:
    """Return a row of a layer."""
    values = {"part": "layer", "update_s": None, **others}
    return MeasuredPart(micro_batch=micro_batch, forward_s=forward_s, backward_s=backward_s, **values)


def profile(*rows: MeasuredPart, **conditions: Any) -> ModelProfile:
    """Return a profile of these rows."""
    return ModelProfile(replace(CONDITIONS, **conditions), "a test", "measured", rows)


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=2, max_size=6), st.data())
def test_between_micro_batches_times_are_on_numpys_line(
    times: list[tuple[float, float, float]], data: st.DataObject
) -> None:
    sizes = [2**index for index in range(len(times))]
    rows = [row(b, f, w, update_s=u) for b, (f, w, u) in zip(sizes, times, strict=True)]
    asked = data.draw(st.integers(1, sizes[-1]))
    found = profile(*data.draw(st.permutations(rows))).at("layer", asked)
    for name, column in zip(("forward_s", "backward_s", "update_s"), zip(*times, strict=True), strict=True):
        assert math.isclose(getattr(found, name), np.interp(asked, sizes, column), rel_tol=1e-12)
    assert found.micro_batch == asked


def test_measured_micro_batches_are_near_the_line_of_their_neighbours() -> None:
    """Each inner micro-batch of 8 and more of the published layers, left out and read from the next ones."""
    errors = []
    for each in PUBLISHED:
        for left_out in (size for size in each.micro_batches("layer")[1:-1] if size >= 8):
            rows = tuple(r for r in each.rows if r.micro_batch != left_out)
            guess, truth = (replace(each, rows=r).at("layer", left_out) for r in (rows, each.rows))
            errors.append(abs(guess.forward_s + guess.backward_s) / (truth.forward_s + truth.backward_s) - 1)
    assert len(errors) > 30
    # The largest bends are those of cards that exchange over the host.
    assert np.abs(errors).max() < 0.2
    assert np.abs(errors).mean() < 0.03


@pytest.mark.parametrize("micro_batch", [1, 9, 1000])
def test_outside_what_was_measured_it_refuses(micro_batch: int) -> None:
    with pytest.raises(
        InputError, match=r"micro_batch: is outside the profile of the layer, which has 2 to 8"
    ):
        profile(row(2), row(8)).at("layer", micro_batch)
    with pytest.raises(InputError, match="head, which has none"):
        profile(row(2), row(8)).at("head", 2)


def test_a_row_that_stands_twice_and_a_profile_without_layers_are_refused() -> None:
    with pytest.raises(InputError, match=r"stands twice.*layer, micro-batch 2"):
        profile(row(2), row(4), row(2))
    with pytest.raises(InputError, match="has no layer"):
        profile(row(2, part="head"))


def test_profiles_are_found_by_what_they_hold_for() -> None:
    small, large = profile(row(1), row(2)), profile(row(4), row(8))
    assert find_profile([small, large], CONDITIONS) is small
    assert find_profile([small, large], CONDITIONS, 4) is large
    deeper = replace(CONDITIONS, shape=SHAPE.model_copy(update={"num_layers": 5, "name": "short"}))
    assert find_profile([small], deeper) is small
    # What a profile does not say is not checked, what it says is.
    assert find_profile([small], replace(CONDITIONS, flash_attention=True)) is small
    fused = profile(row(1), flash_attention=True)
    assert find_profile([fused], replace(CONDITIONS, flash_attention=True)) is fused
    with pytest.raises(InputError, match=r"got 'flash_attention False'.*has flash_attention True"):
        find_profile([fused], replace(CONDITIONS, flash_attention=False))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"chip": "B200-SXM"}, "chip B200-SXM"),
        ({"precision": "fp8"}, "precision fp8"),
        ({"tensor_parallel": 4}, "tensor_parallel 4"),
        ({"sequence_tokens": 8192}, "sequence_tokens 8192"),
        ({"shape": load_shape("llama3-70b")}, "shape llama3-70b"),
    ],
)
def test_conditions_that_were_not_measured_are_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"nothing was profiled.*{said}"):
        find_profile([profile(row(1))], replace(CONDITIONS, **changed))
    with pytest.raises(InputError, match="holds nothing"):
        find_profile([], CONDITIONS)


def test_the_backward_pass_is_split_as_measured_or_as_in_the_roofline() -> None:
    roofline = PartTime(10.0, 16.0, 4.0, recomputed_s=10.0)
    split = measured_part(profile(row(1, 3.0, 9.0, input_grad_s=5.0)), "layer", 1, roofline)
    assert (split.forward_s, split.input_grad_s, split.weight_grad_s) == (3.0, 5.0 + 3.0, 4.0)
    assert split.recomputed_s == 3.0
    whole = measured_part(profile(row(1, 3.0, 9.0)), "layer", 1, roofline)
    # Of 16 seconds 10 are recomputation; the other 6 and 4 share what was measured.
    assert (whole.input_grad_s, whole.weight_grad_s) == (pytest.approx(0.6 * 9 + 3), pytest.approx(0.4 * 9))
    embedding = PartTime(1.0, 0.0, 1.0)
    times = measured_part(profile(row(1), row(1, 3.0, 9.0, part="embedding")), "embedding", 1, embedding)
    assert (times.input_grad_s, times.weight_grad_s) == (0.0, 9.0)


def test_published_profiles_keep_figures_and_source() -> None:
    assert len(PUBLISHED) == 25
    assert sum(len(each.rows) for each in PUBLISHED) == len(sailor_layer_profiles())
    first = next(p for p in PUBLISHED if (p.conditions.chip, p.conditions.tensor_parallel) == ("RTX-3090", 8))
    assert (first.at("layer", 2).forward_s, first.at("layer", 2).update_s) == (0.037899, 0.000868)
    assert first.basis == "published"
    assert "SAILOR" in first.source


ROWS: list[dict[str, Any]] = [
    {"part": "layer", "micro_batch": 1, "forward_s": 0.5, "backward_s": 1.25, "update_s": 0.01},
    {"part": "layer", "micro_batch": 2, "forward_s": 0.75, "input_grad_s": 1.0, "weight_grad_s": 0.5},
    {"part": "head", "micro_batch": 2, "forward_s": 0.1, "backward_s": 0.2},
]
SHARED: dict[str, Any] = {
    "model": "llama3-8b",
    "chip": "h100",
    "precision": "bf16",
    "tensor_parallel": 2,
    "sequence_tokens": 4096,
    "flash_attention": True,
    "source": "our own node",
}


def write(folder: Path, kind: str, rows: list[dict[str, Any]], shared: dict[str, Any]) -> Path:
    """Write a file of that kind."""
    file = folder / f"profile.{kind}"
    if kind == "json":
        file.write_text(json.dumps({**shared, "rows": rows}))
    elif kind == "csv":
        columns = list(dict.fromkeys([*shared, *(key for each in rows for key in each)]))
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(
                {k: str(v).lower() if v is True else v for k, v in (shared | r).items()} for r in rows
            )
    else:
        lines = [f"{key} = {json.dumps(value)}" for key, value in shared.items()]
        for each in rows:
            lines += ["[[rows]]", *(f"{key} = {json.dumps(value)}" for key, value in each.items())]
        file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("kind", ["toml", "json", "csv"])
def test_files_of_each_kind_say_the_same(kind: str, tmp_path: Path) -> None:
    (found,) = load_profiles(write(tmp_path, kind, ROWS, SHARED))
    assert found.conditions == replace(CONDITIONS, flash_attention=True)
    assert (found.source, found.basis) == ("our own node", "measured")
    assert found.at("layer", 1) == row(1, 0.5, 1.25, update_s=0.01)
    assert found.at("layer", 2) == row(2, 0.75, 1.5, input_grad_s=1.0)
    assert found.at("head", 2) == row(2, 0.1, 0.2, part="head")


def test_rows_of_several_conditions_make_several_profiles(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "tensor_parallel": 4}, ROWS[0], {**ROWS[0], "micro_batch": 3}]
    found = load_profiles(write(tmp_path, "json", rows, SHARED))
    assert [each.conditions.tensor_parallel for each in found] == [4, 2]
    assert found[1].micro_batches("layer") == (1, 3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"chip": "H9000"}, r"profiles: row 1: chip: unknown chip"),
        ({"model": "llama9"}, r"row 1: model: unknown model"),
        ({"forward_s": -1.0}, r"row 1: forward_s"),
        ({"forward_s": 0}, r"row 1: forward_s"),
        ({"micro_batch": 1.5}, r"row 1: micro_batch"),
        ({"tensor_parallel": True}, r"row 1: tensor_parallel: must be a number"),
        ({"part": "decoder"}, r"row 1: part"),
        ({"precision": "fp7"}, r"row 1: precision"),
        ({"colour": "red"}, r"row 1: colour"),
        ({"backward_s": 0.0}, r"row 1: backward_s"),
        ({"backward_s": None, "input_grad_s": 0.0, "weight_grad_s": 0.0}, r"row 1.*takes some time"),
        ({"input_grad_s": 1.0}, r"row 1.*either backward_s, or input_grad_s and weight_grad_s"),
        ({"backward_s": None}, r"row 1.*either backward_s, or input_grad_s and weight_grad_s"),
        ({"source": ""}, r"row 1: source"),
    ],
)
def test_a_row_that_cannot_be_is_named(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load_profiles(write(tmp_path, "json", [ROWS[0] | changed], SHARED))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.json", "[]", "must hold a table"),
        ("p.json", "{", "not valid JSON"),
        ("p.json", '{"rows": []}', "has no rows"),
        ("p.json", '{"rows": [3]}', "needs a list of rows"),
        ("p.toml", "a = 1", "needs a list of rows"),
        ("p.toml", "a =", "not valid"),
        ("p.csv", "", "has no rows"),
        ("p.csv", "a,b\n1,2,3\n", "more cells than there are columns"),
        ("p.csv", 'a,b\n"1,2\n', "not valid CSV"),
        ("p.txt", "", r"use \.toml, \.yaml, \.json or \.csv"),
    ],
)
def test_a_file_that_cannot_be_read_gets_one_line(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        load_profiles(tmp_path / name)
    assert caught.value.field is not None
    assert caught.value.field.startswith("profile")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("none.json", "none.csv", "none.toml"):
        with pytest.raises(InputError, match=r"^profiles: "):
            load_profiles(tmp_path / name)
