"""FLOPs against torch's own counter, the published conventions, and published speeds."""

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.workload.flops import (
    layer_flops,
    logits_flops,
    megatron_hardware_flops,
    megatron_model_flops,
    model_flops,
    mosaic_flops,
)
from dtk.workload.parameters import count_parameters
from dtk.workload.reading import catalogue, load_shape
from dtk.workload.transformer import TransformerShape
from tests.workload.shapes import gpt, shapes

# MT-NLG 530B (arXiv 2201.11990, section 2.4): GPUs, seconds an iteration, published TFLOP/s of a GPU.
MT_NLG = [(2240, 60.1, 125.7, 126), (2800, 50.2, 120.4, 121), (3360, 44.4, 113.5, 113)]


@pytest.mark.parametrize(("gpus", "seconds", "tflops", "published"), MT_NLG)
def test_mt_nlg_speeds(gpus: int, seconds: float, tflops: float, published: int) -> None:
    flops = megatron_hardware_flops(load_shape("megatron-529.6b"), batch=1920, sequence_tokens=2048)
    speed = flops / seconds / gpus / 1e12
    assert speed == pytest.approx(tflops, abs=0.05)
    assert speed == pytest.approx(published, abs=1)


# tables.tex in the history of NVIDIA/Megatron-LM: tensor-parallel ranks; milliseconds and TFLOP/s of a GPU
# on a DGX-2 with V100s (batch 8), a DGX-A100 (batch 16) and up to 1024 A100s (batch 2048 on 128 t GPUs).
MEGATRON_2020 = {
    "megatron2020-1b": (1, (1121, 71.9), (1076, 149.8), (1153, 139.8)),
    "megatron2020-2b": (2, (1093, 64.2), (1026, 136.8), (1101, 127.5)),
    "megatron2020-4b": (4, (1238, 58.5), (1162, 124.7), (1242, 116.7)),
    "megatron2020-8b": (8, (1407, 52.2), (1343, 109.3), (1380, 106.5)),
}


@pytest.mark.parametrize("name", MEGATRON_2020)
def test_v100_and_a100_speeds(name: str) -> None:
    ranks, *measured = MEGATRON_2020[name]
    for (milliseconds, tflops), (batch, replicas) in zip(
        measured, [(8, 1), (16, 1), (2048, 128)], strict=True
    ):
        flops = megatron_hardware_flops(load_shape(name), batch=batch, sequence_tokens=1024)
        # Milliseconds are whole ones.
        assert flops / milliseconds / ranks / replicas / 1e9 == pytest.approx(tflops, rel=0.001)


@pytest.mark.parametrize("name", [name for name in catalogue() if "megatron" in name or "korth" in name])
def test_the_operations_add_up_to_the_published_formulas(name: str) -> None:
    sizes: dict[str, Any] = {"batch": 8, "sequence_tokens": 2048}
    shape = load_shape(name)
    counted = model_flops(shape, **sizes)
    assert counted == pytest.approx(megatron_model_flops(shape, **sizes), rel=1e-12)
    counted = model_flops(shape, **sizes, recomputation="full")
    assert counted == pytest.approx(megatron_hardware_flops(shape, **sizes), rel=1e-12)


def test_mosaic_counts_from_parameters() -> None:
    shape = load_shape("llama2-7b")
    once = 2 * 6_738_415_616 * 4096 + 4 * 32 * 4096 * 4096**2
    assert mosaic_flops(shape, batch=2, sequence_tokens=4096) == 2 * 3 * once
    assert mosaic_flops(shape, batch=2, sequence_tokens=4096, recomputed=True) == 2 * 4 * once
    # It also counts the embedding and the norms, which multiply nothing.
    unused = 32000 * 4096 + 65 * 4096
    counted = model_flops(shape, batch=2, sequence_tokens=4096)
    assert mosaic_flops(shape, batch=2, sequence_tokens=4096) == counted + 2 * 6 * unused * 4096


@pytest.mark.parametrize(
    "config",
    [
        {"num_key_value_heads": 2, "head_dim": 8},
        {"num_key_value_heads": 6, "head_dim": 6},
    ],
)
def test_torch_counts_the_same(config: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    from dtk.workload.huggingface import shape_from_config

    sizes = {"vocab_size": 101, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3}
    llama = transformers.LlamaConfig(**sizes, num_attention_heads=6, **config, attn_implementation="eager")
    shape = shape_from_config(llama)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(llama)
        tokens = torch.zeros(2, 16, dtype=torch.long)
        with FlopCounterMode(display=False) as forward:
            loss = model(tokens).logits.sum()
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    rows = layer_flops(shape, micro_batch=2, sequence_tokens=16)
    head = logits_flops(shape, micro_batch=2, sequence_tokens=16)
    expected = 3 * sum(row.forward_flops for row in rows.values()) + head.forward_flops
    # The rotary table is one more product: frequencies times positions.
    rotary = forward.get_total_flops() - expected
    assert rotary in {0, 2 * 16 * (config["head_dim"] // 2)}
    gradients = sum(row.input_gradient_flops + row.weight_gradient_flops for row in rows.values())
    expected = 3 * gradients + head.input_gradient_flops + head.weight_gradient_flops
    assert backward.get_total_flops() == expected


def test_recomputation_by_operation() -> None:
    sizes: dict[str, Any] = {"micro_batch": 2, "sequence_tokens": 8}
    core = 2 * 2 * 8 * 8 * 32
    again = {
        mode: {name: row.recomputation_flops for name, row in layer_flops(gpt(), **sizes, **options).items()}
        for mode, options in {
            "none": {},
            "flash": {"flash_attention": True},
            "selective": {"recomputation": "selective"},
            "full flash": {"recomputation": "full", "flash_attention": True},
        }.items()
    }
    assert not any(again["none"].values())
    assert {name: flops for name, flops in again["flash"].items() if flops} == {"scores": core}
    assert {name: flops for name, flops in again["selective"].items() if flops} == {
        "scores": core,
        "context": core,
    }
    assert again["full flash"]["scores"] == 2 * core
    assert all(again["full flash"].values())


def test_a_causal_mask_halves_the_core_alone() -> None:
    every, causal = (
        layer_flops(gpt(), micro_batch=1, sequence_tokens=8, causal=causal) for causal in (False, True)
    )
    assert causal["scores"].forward_flops * 64 == every["scores"].forward_flops * 36
    assert causal["qkv"] == every["qkv"]


def test_a_narrow_embedding_is_projected_at_both_ends() -> None:
    narrow, wide = (
        logits_flops(gpt(embedding_size=size), micro_batch=1, sequence_tokens=1).forward_flops
        for size in (16, 32)
    )
    assert wide == 2 * 32 * 100
    assert narrow == 2 * 16 * 100 + 2 * (2 * 16 * 32)


@hypothesis.given(
    shape=shapes(),
    size=st.sampled_from(
        ["num_layers", "hidden_size", "ffn_size", "vocab_size", "head_dim", "batch", "sequence"]
    ),
)
def test_larger_is_more(shape: TransformerShape, size: str) -> None:
    sizes = {"batch": 2, "sequence_tokens": 5}
    if size == "batch":
        larger, more = shape, sizes | {"batch": 3}
    elif size == "sequence":
        larger, more = shape, sizes | {"sequence_tokens": 6}
    else:
        # The vocabulary grows by more than its padding.
        larger = shape.model_copy(update={size: getattr(shape, size) + 128})
        more = sizes
    assert model_flops(larger, **more) > model_flops(shape, **sizes)
    assert mosaic_flops(shape, **sizes) >= 6 * count_parameters(shape) * 10


def test_products_of_activations_have_no_weight_gradient() -> None:
    rows = layer_flops(gpt(), micro_batch=1, sequence_tokens=8)
    for name, row in rows.items():
        passes = (row.input_gradient_flops / row.forward_flops, row.weight_gradient_flops / row.forward_flops)
        assert passes == ((2, 0) if name in {"scores", "context"} else (1, 1))
