"""Parameter counts: published ones, and that the ranks' shares are the whole model's."""

import itertools
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.workload.parameters import (
    count_parameters,
    even_stages,
    layer_parameters,
    model_parameters,
    stage_parameters,
)
from dtk.workload.reading import catalogue
from dtk.workload.transformer import TransformerShape
from tests.workload.shapes import gpt, shapes

# Hugging Face's model cards and safetensors indices.
EXACT = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "smollm2-135m": 134_515_008,
    "mistral-7b": 7_241_732_096,
    "qwen2-7b": 7_615_616_512,
    "gemma-2b": 2_506_172_416,
}
SIZES = ["num_layers", "hidden_size", "ffn_size", "vocab_size", "head_dim", "learned_positions"]


@pytest.mark.parametrize("name", EXACT)
def test_the_catalogue_counts_as_published(name: str) -> None:
    assert count_parameters(catalogue()[name]) == EXACT[name]


@pytest.mark.parametrize("name", [name for name in catalogue() if name.startswith("megatron-")])
def test_the_sc21_sizes_are_the_billions_in_their_names(name: str) -> None:
    billions = float(name.removeprefix("megatron-").removesuffix("b"))
    # The paper rounds to a tenth.
    assert count_parameters(catalogue()[name]) / 1e9 == pytest.approx(billions, abs=0.051)


@hypothesis.given(data=st.data(), ranks=st.sampled_from([1, 2, 3, 4, 8]))
def test_shares_add_up_to_the_model(data: st.DataObject, ranks: int) -> None:
    shape = data.draw(shapes(tensor_parallel=ranks))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape.num_layers), max_size=4)))
    bounds = [0, *cuts, shape.num_layers]
    layers = [end - start for start, end in itertools.pairwise(bounds)]

    stages = stage_parameters(shape, layers, tensor_parallel=ranks)

    padded = shape.model_copy(
        update={"vocab_size": shape.padded_vocab_size(ranks), "vocab_multiple": 1},
    )
    assert sum(stage.distinct for stage in stages) == count_parameters(padded)
    assert [stage.num_layers for stage in stages] == layers
    held = sum(stage.per_rank * ranks for stage in stages)
    assert held >= count_parameters(padded)
    if ranks == 1:
        repeated = shape.tied_embeddings and len(layers) > 1
        embedding = shape.padded_vocab_size() * shape.embedding_size
        assert held == count_parameters(padded) + (embedding if repeated else 0)


@hypothesis.given(shape=shapes(), size=st.sampled_from(SIZES), more=st.integers(1, 10))
def test_a_larger_size_never_has_fewer_parameters(shape: TransformerShape, size: str, more: int) -> None:
    larger = shape.model_copy(update={size: getattr(shape, size) + more})
    # A hidden size that grows to that of the embedding does without the projections between them.
    hypothesis.assume(
        shape.embedding_size == shape.hidden_size or larger.embedding_size != larger.hidden_size
    )
    assert count_parameters(larger) >= count_parameters(shape)
    if size in {"num_layers", "hidden_size", "ffn_size", "vocab_size"}:
        assert count_parameters(larger) > count_parameters(shape)


def test_norms_and_row_biases_are_on_every_rank() -> None:
    shape = gpt(num_layers=1)
    one, four = (stage_parameters(shape, [1], tensor_parallel=ranks)[0] for ranks in (1, 4))
    held = {part.part for part in four.parts if part.copies == 4}
    assert held == {"positions", "attention_projection", "ffn_out", "norms", "final_norm"}
    # Positions, two norms and the final one with biases, and the two biases of the row-cut matrices.
    whole = 64 * 32 + 3 * 2 * 32 + 2 * 32
    assert four.per_rank == whole + (one.per_rank - whole) // 4


def test_few_kv_heads_are_repeated() -> None:
    shape = gpt(num_heads=8, num_kv_heads=2, num_layers=1)
    stage = stage_parameters(shape, [1], tensor_parallel=8)[0]
    key_value = [part for part in stage.parts if part.part == "qkv" and part.copies > 1]
    assert [(part.per_rank, part.copies) for part in key_value] == [(33 * 2 * 4, 4)]


def test_the_last_stage_repeats_a_tied_embedding_only_if_it_is_elsewhere() -> None:
    shape = gpt()
    alone, *_ = stage_parameters(shape, [4])
    first, last = stage_parameters(shape, [2, 2])
    embedding = 100 * 32
    assert "head" not in {part.part for part in alone.parts}
    assert first.per_rank + last.per_rank == alone.per_rank + embedding
    assert first.distinct + last.distinct == alone.distinct


def test_the_heaviest_stage_is_not_the_average() -> None:
    # Averaging layers over uneven stages hides the heaviest one by a third.
    shape = gpt(num_layers=8, vocab_size=1000, tied_embeddings=False)
    stages = [stage.per_rank for stage in stage_parameters(shape, [1, 2, 2, 3])]
    assert max(stages) == stages[-1] > 1.3 * sum(stages) / 4


def test_padding_counts_only_when_asked_for() -> None:
    shape = gpt(vocab_multiple=128)
    assert model_parameters(shape)["embedding"] == 100 * 32
    assert model_parameters(shape, padded=True)["embedding"] == 128 * 32
    assert shape.padded_vocab_size(4) == 512


def test_a_layer_by_part() -> None:
    hidden = 32
    assert layer_parameters(gpt()) == {
        "qkv": 3 * (hidden * hidden + hidden),
        "attention_projection": hidden * hidden + hidden,
        "ffn_in": 4 * hidden * hidden + 4 * hidden,
        "ffn_out": 4 * hidden * hidden + hidden,
        "norms": 4 * hidden,
    }


def test_even_stages() -> None:
    assert even_stages(12, 4) == [3, 3, 3, 3]
    with pytest.raises(InputError, match=r"num_stages: must divide the 7 layers \(got 2\); a divisor of 7"):
        even_stages(7, 2)
    with pytest.raises(InputError, match="at least 1"):
        even_stages(7, 0)


@pytest.mark.parametrize(
    ("sizes", "ranks", "message"),
    [
        ({"num_heads": 6, "head_dim": 4}, 4, "tensor_parallel: must divide the 6 query heads"),
        ({"ffn_size": 6}, 4, "tensor_parallel: must divide the 6 MLP columns"),
        ({"num_heads": 12, "head_dim": 4, "num_kv_heads": 6}, 4, "must divide the 6 key and value heads"),
        ({}, 0, "at least 1"),
    ],
)
def test_ranks_that_do_not_fit(sizes: dict[str, Any], ranks: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stage_parameters(gpt(**sizes), [4], tensor_parallel=ranks)


@pytest.mark.parametrize("layers", [[], [3], [5, -1], [2, 3]])
def test_layers_that_do_not_add_up(layers: list[int]) -> None:
    with pytest.raises(InputError, match="must add up to the model's 4 layers"):
        stage_parameters(gpt(), layers)
