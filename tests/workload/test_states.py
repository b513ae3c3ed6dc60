"""Model states: the published bytes of a parameter, published GiB, and sharding."""

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.errors import InputError
from dtk.workload.parameters import layer_parameters, stage_parameters
from dtk.workload.reading import load_shape
from dtk.workload.states import RECIPES, Sharding, recipe, state_bytes

GIB = 2**30
# Weights and optimizer of a GPU, as in the validation data of calculon-ai/calculon, which counts the matrices
# of the layers only: of 8 tensor-parallel ranks, with the pipeline ranks and chunks of these models.
PUBLISHED = {
    "korthikanti-22b": (1, 45.56),
    "korthikanti-175b": (8, 45.56),
    "korthikanti-530b": (35, 31.64),
    "korthikanti-1t": (64, 32.96),
}
MEGATRON = recipe("adam-fp32-gradients")


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_weights_and_optimizer(name: str) -> None:
    pipeline, gibibytes = PUBLISHED[name]
    shape = load_shape(name)
    layer = layer_parameters(shape.model_copy(update={"norm": "plain", **NO_BIASES}))
    parameters = shape.num_layers // pipeline * sum(layer.values()) // 8
    assert state_bytes(parameters, MEGATRON).total_bytes / GIB == pytest.approx(gibibytes, abs=0.006)
    # Biases and norms, and at the ends the embeddings, come on top.
    stages = stage_parameters(shape, [shape.num_layers // pipeline] * pipeline, tensor_parallel=8)
    middle = state_bytes(stages[len(stages) // 2].per_rank, MEGATRON).total_bytes / GIB
    assert gibibytes < middle < gibibytes * 1.025


NO_BIASES = {"qkv_bias": False, "projection_bias": False, "ffn_bias": False}


def test_bytes_of_a_parameter() -> None:
    sizes = {name: entry.bytes_per_parameter for name, entry in RECIPES.items()}
    assert sizes == {
        "adam-fp32-gradients": 18,
        "adam-16bit-gradients": 16,
        "adam-fp32": 16,
        "adam-pure-16bit": 8,
        "adam-8bit": 10,
        "sgd-momentum-fp32": 12,
    }
    assert all(entry.source and entry.description for entry in RECIPES.values())


def test_megatron_s_distributed_optimizer() -> None:
    # 6 + 12/D bytes
    for ranks in (1, 2, 8):
        assert state_bytes(800, MEGATRON, Sharding(1, ranks)).total_bytes == 800 * 6 + 800 * 12 // ranks


def test_zero_s_figure_1() -> None:
    # 7.5 B parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB (arXiv 1910.02054, figure 1).
    sizes = [
        state_bytes(7_500_000_000, recipe("adam-16bit-gradients"), Sharding(stage, 64)).total_bytes / 1e9
        for stage in range(4)
    ]
    assert sizes == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


def test_hybrids() -> None:
    plain = state_bytes(6400, MEGATRON, Sharding(3, 8))
    wider = state_bytes(6400, MEGATRON, Sharding(3, 8, optimizer_replicas=4))
    assert wider.weights_bytes == plain.weights_bytes == 2 * 800
    assert (plain.optimizer_bytes, wider.optimizer_bytes) == (12 * 800, 12 * 200)
    assert state_bytes(64, MEGATRON, Sharding(0, 8, optimizer_replicas=4)).optimizer_bytes == 12 * 16


def test_what_is_gathered_and_not_reduced_comes_on_top() -> None:
    sizes = state_bytes(1001, MEGATRON, Sharding(3, 8), gathered_parameters=250, unreduced_parameters=100)
    assert sizes.weights_bytes == 2 * 126
    assert (sizes.gathered_weights_bytes, sizes.gradient_buffer_bytes) == (500, 400)
    assert sizes.total_bytes == 18 * 126 + 900


@hypothesis.given(
    parameters=st.integers(0, 10**6),
    name=st.sampled_from(list(RECIPES)),
    ranks=st.integers(1, 64),
    stage=st.integers(0, 2),
)
def test_sharding_saves(parameters: int, name: str, ranks: int, stage: int) -> None:
    def total(stage: int, ranks: int, more: int = 0) -> int:
        return state_bytes(parameters + more, recipe(name), Sharding(stage, ranks)).total_bytes

    assert total(stage + 1, ranks) <= total(stage, ranks) <= total(0, 1) == total(0, 64)
    assert total(stage, ranks + 1) <= total(stage, ranks)
    assert total(stage, ranks, more=64) > total(stage, ranks)
    # No byte is lost: the shards cover everything.
    assert total(3, ranks) * ranks >= total(0, 1)


def test_what_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"recipe: unknown recipe \(got 'adam'\); one of adam-fp32-gradients"
    ):
        recipe("adam")
    with pytest.raises(InputError, match="sharding_stage: must be 0, 1, 2 or 3"):
        Sharding(4)
    with pytest.raises(InputError, match="ranks: must be at least 1"):
        Sharding(1, 0)
    with pytest.raises(InputError, match="num_parameters: must not be negative"):
        state_bytes(-1, MEGATRON)
    with pytest.raises(InputError, match="gathered_parameters: needs sharding stage 3"):
        state_bytes(1, MEGATRON, Sharding(2, 2), gathered_parameters=1)
    with pytest.raises(InputError, match="unreduced_parameters: needs sharding stage 2"):
        state_bytes(1, MEGATRON, Sharding(1, 2), unreduced_parameters=1)
