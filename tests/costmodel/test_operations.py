"""Operations of a layer against torch: FLOPs of its dispatcher, bytes that its autograd keeps.

A chip of infinite memory rate and a FLOP a second takes as many seconds as there are FLOPs; one of infinite
speed that moves a byte a second takes as many as there are bytes.
"""

import math
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dtk.costmodel.operations import (
    OperationTime,
    embedding_operations,
    head_operations,
    layer_operations,
)
from dtk.costmodel.roofline import Roofline
from dtk.workload.activations import ActivationSettings
from dtk.workload.flops import layer_flops, logits_flops
from dtk.workload.parameters import stage_parameters
from dtk.workload.transformer import TransformerShape
from tests.costmodel.machines import chip_of, constants_of, machine_of_figures, roofline_of
from tests.workload.shapes import gpt, shapes

PASSES = ("forward_s", "input_grad_s", "weight_grad_s")
MATRICES = {"qkv", "projection", "ffn_in", "ffn_out"}

GQA = TransformerShape.from_values(
    {
        "family": "llama",
        "num_layers": 2,
        "hidden_size": 48,
        "num_heads": 12,
        "num_kv_heads": 2,
        "head_dim": 8,
        "ffn_size": 96,
        "vocab_size": 101,
    }
)


def counting(peak: float = math.inf, memory: float = math.inf, element_bytes: int = 2) -> Roofline:
    chip = chip_of(peak=peak, memory_bytes_per_s=memory)
    return roofline_of(machine_of_figures(chip=chip, constants=constants_of()), element_bytes)


def settings_of(ranks: int = 1, **changes: Any) -> ActivationSettings:
    return ActivationSettings(micro_batch=2, sequence_tokens=24, tensor_parallel=ranks, **changes)


def total(operations: Sequence[OperationTime]) -> list[float]:
    return [sum(getattr(each, name) for each in operations) for name in PASSES]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("shape", [gpt(), GQA], ids=["gpt", "llama"])
def test_the_flops_of_a_rank_are_those_that_torch_counts(shape: TransformerShape, ranks: int) -> None:
    pytest.importorskip("torch")
    from tests.costmodel.torch_layer import layer_flops_by_torch

    settings = settings_of(ranks)
    counted = layer_flops_by_torch(shape, settings)
    found = total(layer_operations(shape, settings, counting(peak=1)))
    assert found == [counted.forward, counted.input_grad, counted.weight_grad]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_flops_of_fused_attention_are_those_that_torch_counts(ranks: int) -> None:
    pytest.importorskip("torch")
    from tests.costmodel.torch_layer import flash_flops_by_torch

    settings = settings_of(ranks, flash_attention=True)
    counted = flash_flops_by_torch(gpt(), settings)
    (flash,) = (
        each for each in layer_operations(gpt(), settings, counting(peak=1)) if each.name == "flash attention"
    )
    # Torch counts all pairs of tokens; a causal kernel leaves out those above the diagonal.
    left = (settings.sequence_tokens + 1) / (2 * settings.sequence_tokens)
    assert flash.forward_s == pytest.approx(counted.forward * left)
    assert flash.input_grad_s == pytest.approx(counted.input_grad * left)
    assert flash.weight_grad_s == 0


@hypothesis.given(st.data(), st.sampled_from([1, 2, 4]), st.booleans())
def test_the_flops_of_all_ranks_are_the_model_s(data: st.DataObject, ranks: int, flash: bool) -> None:
    shape = data.draw(shapes(tensor_parallel=ranks))
    settings = settings_of(ranks, flash_attention=flash)
    sizes: Any = {"micro_batch": 2, "sequence_tokens": 24}
    rows = layer_flops(shape, **sizes, flash_attention=flash, causal=flash)
    forward, inputs, weights = total(layer_operations(shape, settings, counting(peak=1)))
    model = [
        sum(row.forward_flops for row in rows.values()),
        sum(row.input_gradient_flops + row.recomputation_flops for row in rows.values()),
        sum(row.weight_gradient_flops for row in rows.values()),
    ]
    # Ranks beyond the key and value heads compute copies of them.
    copies = max(0, ranks - shape.num_kv_heads) * 2 * 2 * 48 * shape.hidden_size * shape.head_dim
    assert [ranks * each for each in (forward, inputs, weights)] == pytest.approx(
        [each + copies for each in model]
    )
    head = logits_flops(shape, **sizes, tensor_parallel=ranks)
    ends = total(embedding_operations(shape, settings, counting(peak=1)))
    ends = [
        one + two
        for one, two in zip(ends, total(head_operations(shape, settings, counting(peak=1))), strict=True)
    ]
    projections = (
        0
        if shape.embedding_size == shape.hidden_size
        else 2 * 2 * 48 * shape.embedding_size * shape.hidden_size
    )
    for found, counted in zip(
        ends, (head.forward_flops, head.input_gradient_flops, head.weight_gradient_flops), strict=True
    ):
        # The projections of a narrow embedding are whole on each rank.
        assert ranks * found == pytest.approx(counted + (ranks - 1) * projections)


@hypothesis.given(st.data(), st.sampled_from([1, 2, 4]))
def test_products_read_and_write_the_rank_s_weights(data: st.DataObject, ranks: int) -> None:
    """Of a single token in two of the passes, all but a few bytes are the weights."""
    shape = data.draw(shapes(tensor_parallel=ranks)).model_copy(
        update={"qkv_bias": False, "projection_bias": False, "ffn_bias": False}
    )
    settings = [ActivationSettings(1, tokens, ranks, flash_attention=True) for tokens in (1, 2)]
    roofline = counting(memory=1, element_bytes=1)
    one, two = (
        total([each for each in layer_operations(shape, own, roofline) if each.name in MATRICES])
        for own in settings
    )
    (stage,) = stage_parameters(shape, [shape.num_layers], tensor_parallel=ranks)
    weights = sum(
        part.per_rank
        for part in stage.parts
        if part.part in {"qkv", "attention_projection", "ffn_in", "ffn_out"}
    )
    for first, second in zip(one, two, strict=True):
        assert shape.num_layers * (2 * first - second) == pytest.approx(weights)


NAMED = {
    "attention norm": "norm",
    "ffn norm": "norm",
    "softmax": "softmax",
    "attention dropout": "dropout",
    "activation": "activation",
    "attention residual": "residual",
    "ffn residual": "residual",
}


@pytest.mark.parametrize("shape", [gpt(), GQA], ids=["gpt", "llama"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("dropout", [False, True])
def test_the_bytes_of_streams_are_those_that_torch_keeps(
    shape: TransformerShape, ranks: int, sequence_parallel: bool, dropout: bool
) -> None:
    torch = pytest.importorskip("torch")
    from torch.nn import functional as F

    from tests.costmodel.torch_layer import count_traffic

    settings = settings_of(
        ranks, sequence_parallel=sequence_parallel, attention_dropout=dropout, hidden_dropout=dropout
    )
    tokens, hidden = 48 // (ranks if sequence_parallel else 1), shape.hidden_size

    def of(*size: int) -> Any:
        return torch.randn(*size, dtype=torch.bfloat16, requires_grad=True)

    def drop(tensor: Any) -> Any:
        return torch.native_dropout(tensor, 0.5, True)[0] if dropout else tensor

    whole, weight = (of(tokens, hidden), of(tokens, hidden)), of(hidden)
    scores = of(2, shape.num_heads // ranks, 24, 24)
    middle = of(48, shape.ffn_size // ranks * (2 if shape.gated else 1))
    # What is smaller than a head's queries are statistics and weights.
    counted = {
        "norm": count_traffic(lambda x: F.layer_norm(x, (hidden,), weight), whole[0], smallest=100),
        "softmax": count_traffic(lambda x: x.softmax(-1), scores, smallest=100),
        "activation": count_traffic(F.glu if shape.gated else F.gelu, middle, smallest=100),
        "residual": count_traffic(lambda x, y: x + drop(y), *whole, smallest=100),
    }
    if dropout:
        counted["dropout"] = count_traffic(drop, scores, smallest=100)
    operations = layer_operations(shape, settings, counting(memory=1))
    found = {each.name: (each.forward_s, each.input_grad_s) for each in operations if each.name in NAMED}
    assert set(NAMED) - set(found) == (set() if dropout else {"attention dropout"})
    for name, times in found.items():
        expected = counted[NAMED[name]]
        assert times == (expected.forward, expected.backward), name


def test_laying_out_heads_reads_and_writes_them() -> None:
    (layout,) = (
        each for each in layer_operations(GQA, settings_of(2), counting(memory=1)) if each.name == "layout"
    )
    # Six query heads and one head each of keys and values go in, the context of six comes out: each moved.
    assert layout.forward_s == layout.input_grad_s == 2 * 2 * 48 * 8 * (6 + 2 + 6)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_embedding_and_the_loss_in_bytes(ranks: int) -> None:
    settings, roofline = settings_of(ranks), counting(memory=1)
    (embedding,) = embedding_operations(gpt(), settings, roofline)
    assert (embedding.forward_s, embedding.input_grad_s) == (2 * 2 * 48 * 32, 0)
    assert embedding.weight_grad_s == embedding.forward_s
    loss = next(each for each in head_operations(gpt(), settings, roofline) if each.name == "loss")
    assert loss.forward_s + loss.input_grad_s == pytest.approx(18 * 48 * 100 / ranks)
    assert loss.weight_grad_s == 0


def test_every_operation_is_launched() -> None:
    """A chip of infinite speed still takes the time of its launches: no pass is free."""
    chip = chip_of(peak=math.inf, memory_bytes_per_s=math.inf)
    launching = roofline_of(machine_of_figures(chip=chip, constants=constants_of(kernel_s=1)))
    for operation in layer_operations(gpt(), settings_of(), launching):
        assert operation.forward_s >= 1
        assert operation.input_grad_s >= 1
        assert (operation.weight_grad_s >= 1) == (operation.name in MATRICES)


@hypothesis.given(st.data(), st.sampled_from([1, 2, 4]), st.booleans(), st.booleans())
def test_sequence_parallelism_changes_no_product(
    data: st.DataObject, ranks: int, flash: bool, dropout: bool
) -> None:
    shape = data.draw(shapes(tensor_parallel=ranks))
    both = [
        layer_operations(
            shape,
            settings_of(ranks, sequence_parallel=sequence, flash_attention=flash, hidden_dropout=dropout),
            counting(peak=1e3, memory=1),
        )
        for sequence in (False, True)
    ]
    for without, cut in zip(*both, strict=True):
        assert without.name == cut.name
        if without.name in MATRICES or ranks == 1:
            assert without == cut
        assert cut.forward_s <= without.forward_s


def test_each_gradient_has_its_own_depth() -> None:
    """The MLP's first matrix, [48, 32] by [32, 128]: inner sizes of 32, and of 128 and 48 in the backward."""
    constants = constants_of(matmul_half_depth=16)
    chip = chip_of(peak=1, memory_bytes_per_s=math.inf)
    roofline = roofline_of(machine_of_figures(chip=chip, constants=constants))
    (first,) = (each for each in layer_operations(gpt(), settings_of(), roofline) if each.name == "ffn_in")
    once = 2 * 48 * 32 * 128
    expected = [once * (1 + 16 / depth) for depth in (32, 128, 48)]
    assert [getattr(first, name) for name in PASSES] == pytest.approx(expected)
