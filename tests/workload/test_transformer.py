"""Shapes from values, files and the catalogue, and what is refused."""

from pathlib import Path
from typing import Any

import pydantic
import pytest

from dtk.errors import InputError
from dtk.workload.reading import catalogue, load_shape
from dtk.workload.transformer import TransformerShape
from tests.workload.shapes import gpt

LLAMA: dict[str, Any] = {
    "family": "llama",
    "num_layers": 2,
    "hidden_size": 64,
    "num_heads": 4,
    "ffn_size": 96,
    "vocab_size": 100,
}


def test_the_family_sets_defaults() -> None:
    plain = gpt()
    assert (plain.ffn_size, plain.head_dim, plain.num_kv_heads, plain.embedding_size) == (128, 8, 4, 32)
    assert (plain.gated, plain.qkv_bias, plain.norm, plain.tied_embeddings) == (False, True, "layer", True)
    llama = TransformerShape.from_values(LLAMA)
    assert (llama.gated, llama.ffn_bias, llama.norm, llama.tied_embeddings) == (True, False, "rms", False)
    assert TransformerShape.from_values(LLAMA | {"qkv_bias": True}).qkv_bias


def test_sequence_limit() -> None:
    assert TransformerShape.from_values(LLAMA).sequence_limit is None
    assert gpt().sequence_limit == 64
    assert gpt(max_positions=60).sequence_limit == 60


def test_a_shape_is_frozen() -> None:
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        gpt().num_layers = 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers: must be greater than or equal to 1"),
        ({"num_layers": 2.5}, "num_layers: must be a valid integer"),
        ({"num_layers": True}, "num_layers: must be a number"),
        ({"num_heads": 5}, r"hidden_size \(64\) must be a multiple of num_heads \(5\); or give head_dim"),
        ({"num_kv_heads": 3}, r"num_kv_heads \(3\) must divide num_heads \(4\)"),
        ({"ffn_size": None}, "ffn_size: field required"),
        ({"hidden_size": None}, "hidden_size: field required"),
        ({"family": "bert"}, "family: must be 'gpt' or 'llama'"),
        ({"family": ["gpt"]}, "family"),
        ({"experts": 8}, "experts: unknown key"),
        ({"vocab_size": 2**50}, "vocab_size"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TransformerShape.from_values(LLAMA | change)


def test_every_catalogue_entry_has_a_source_and_its_own_name() -> None:
    assert len(catalogue()) > 30
    for name, shape in catalogue().items():
        assert shape.name == name == name.lower()
        assert shape.source
        assert shape.sequence_limit


@pytest.mark.parametrize("ending", ["toml", "yaml"])
def test_a_file_of_one_s_own(ending: str, tmp_path: Path) -> None:
    sign = "=" if ending == "toml" else ":"
    lines = []
    for key, value in LLAMA.items():
        text = f'"{value}"' if isinstance(value, str) else str(value)
        lines.append(f"{key} {sign} {text}")
    file = tmp_path / f"mine.{ending}"
    file.write_text("\n".join(lines))
    for given in (file, str(file)):
        shape = load_shape(given)
        assert shape.name == "mine"
        assert shape.model_dump(exclude={"name", "source"}) == TransformerShape.from_values(LLAMA).model_dump(
            exclude={"name", "source"}
        )


def test_names_in_any_case() -> None:
    assert load_shape("GPT3-175B") is catalogue()["gpt3-175b"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("gpt3-175", r"model: unknown model \(got 'gpt3-175'\); did you mean gpt3-175b"),
        ("zzzz", "one of gpt3-125m, .*; or give a file"),
        ("", "unknown model"),
        ("missing.toml", r"model: cannot read the file.*missing\.toml"),
        ("missing.json", "model: no such file"),
        ("no/such/folder", "model"),
        (5000 * "a", "model: unknown model"),
        (5000 * "a" + ".toml", "model: cannot read the file"),
        (5000 * "a" + ".json", "model"),
    ],
)
def test_models_that_are_not_there(model: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_shape(model)


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_shape(tmp_path)
