"""The same decode with the device tier on a GPU and the host tier in host memory."""

from typing import Any

import pytest
import torch

from dtk.models import tiny_model
from dtk.scout import ScoutConfig, attach
from tests.scout.test_transformers import (
    DENSE,
    SHAPE,
    SPARSE,
    host_share,
    largest_difference,
    left_padded,
    run,
)

pytestmark = pytest.mark.gpu


def on_gpu(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.cuda() for name, tensor in inputs.items()}


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "mistral"])
def test_budget_above_the_context_equals_stock_sdpa_on_the_gpu(architecture: str) -> None:
    model: Any = tiny_model(architecture, seed=3, shape=SHAPE).cuda()
    inputs = on_gpu(left_padded([61, 8, 1, 40]))
    stock = run(model, inputs)
    with attach(model, DENSE) as session:
        scout = run(model, inputs, session.new_cache())
    assert torch.equal(scout.sequences, stock.sequences)
    assert largest_difference(scout, stock) < 1e-3


@pytest.mark.parametrize("host_query", ["predicted", "real"])
def test_sparse_decode_equals_the_one_on_the_cpu(host_query: str) -> None:
    config = SPARSE.model_copy(update={"host_query": host_query})
    inputs = left_padded([90, 33, 3], seed=1)
    logits = []
    for device in ("cpu", "cuda"):
        model: Any = tiny_model("llama", seed=5, shape=SHAPE).to(device)
        with attach(model, config) as session:
            cache = session.new_cache()
            steps = run(model, {name: x.to(device) for name, x in inputs.items()}, cache, tokens=12)
        logits.append(torch.stack(steps.logits).cpu())
        assert all(host_share(layer) for layer in cache.offloaded.values())
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-2, atol=1e-3)


def test_each_tier_lies_where_it_should() -> None:
    model: Any = tiny_model("llama", shape=SHAPE).cuda()
    with attach(model, ScoutConfig(budget_tokens=32, block_size=8, dense_layers=1)) as session:
        cache = session.new_cache()
        run(model, on_gpu(left_padded([90])), cache, tokens=4)
    layer = cache.offloaded[1].offloaded
    assert not layer.host_tier.keys.is_cuda
    assert layer.device_tier.keys.is_cuda
