"""What torch's autograd really keeps of a layer, against the count."""

import gc
import math
from collections import Counter
from typing import Any

import pytest

from dtk.workload.activations import ActivationSettings, layer_activation_bytes
from tests.workload.shapes import gpt

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, hidden: int, heads: int, ffn: int, *, flash: bool) -> None:
        super().__init__()
        self.heads, self.flash = heads, flash
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)])
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)
        self.projection = torch.nn.Linear(hidden, hidden)
        self.ffn_in = torch.nn.Linear(hidden, ffn)
        self.ffn_out = torch.nn.Linear(ffn, hidden)

    def attention(self, x: Any) -> Any:
        batch, tokens, hidden = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, hidden // self.heads)
        # Contiguous, as the kernels of Megatron-LM and FlashAttention have them.
        q, k, v = (part.contiguous() for part in split.permute(2, 0, 3, 1, 4))
        if self.flash:
            context = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = torch.matmul(q * (1 / math.sqrt(q.shape[-1])), k.transpose(-1, -2))
            context = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.projection(context.transpose(1, 2).reshape(batch, tokens, hidden))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x))
        return x + self.ffn_out(F.gelu(self.ffn_in(self.norms[1](x))))


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize(("batch", "tokens", "ffn"), [(1, 16, 128), (3, 20, 100)])
def test_the_bytes_that_autograd_keeps(batch: int, tokens: int, ffn: int, flash: bool) -> None:
    hidden, heads = 32, 4
    layer = Layer(hidden, heads, ffn, flash=flash)
    weights = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = layer(torch.randn(batch, tokens, hidden, requires_grad=True))
    assert output.requires_grad

    settings = ActivationSettings(
        batch,
        tokens,
        flash_attention=flash,
        attention_dropout=False,
        hidden_dropout=False,
        element_bytes=4,
    )
    shape = gpt(hidden_size=hidden, num_heads=heads, ffn_size=ffn)
    # The two norms keep mean and reciprocal deviation of each row, which the paper leaves out as small.
    statistics = 2 * 2 * 4 * batch * tokens
    # torch's CPU kernel writes its output head by head, so that a copy feeds the projection; the kernels
    # that the count is for write it token by token.
    copy = 4 * batch * tokens * hidden if flash else 0
    kept_bytes = sum(storage.nbytes() for storage in kept.values())
    assert kept_bytes == layer_activation_bytes(shape, settings) + statistics + copy


class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A layer of Llama's or GPT's products with weights, in torchtitan's order, without biases."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int, *, gated: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads

        def linear(inputs: int, outputs: int) -> Any:
            return torch.nn.Linear(inputs, outputs, bias=False)

        self.norms = torch.nn.ModuleList([torch.nn.RMSNorm(hidden), torch.nn.RMSNorm(hidden)])
        self.query = linear(hidden, hidden)
        self.key, self.value = (linear(hidden, kv_heads * self.size) for _ in range(2))
        self.projection = linear(hidden, hidden)
        self.gate, self.down = linear(hidden, ffn), linear(ffn, hidden)
        self.up = linear(hidden, ffn) if gated else None

    def forward(self, x: Any) -> Any:
        batch, tokens, hidden = x.shape
        normed = self.norms[0](x)

        def split(y: Any, heads: int) -> Any:
            return y.view(batch, tokens, heads, self.size).transpose(1, 2)

        q = split(self.query(normed), self.heads)
        k, v = split(self.key(normed), self.kv_heads), split(self.value(normed), self.kv_heads)
        context = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        x = x + self.projection(context.transpose(1, 2).reshape(batch, tokens, hidden))
        normed = self.norms[1](x)
        inner = F.silu(self.gate(normed))
        return x + self.down(inner if self.up is None else inner * self.up(normed))


def _every_second(seen: Counter[bool]) -> Any:
    """torchtitan's policy: keep fused attention, and of the products the first, third and so on."""
    policy = torch.utils.checkpoint.CheckpointPolicy

    def decide(context: Any, operation: Any, *_: Any, **__: Any) -> Any:
        if operation == torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
            return policy.MUST_SAVE
        if operation != torch.ops.aten.mm.default:
            return policy.PREFER_RECOMPUTE
        seen[context.is_recompute] += 1
        return policy.MUST_SAVE if seen[context.is_recompute] % 2 else policy.PREFER_RECOMPUTE

    return torch.utils.checkpoint.create_selective_checkpoint_contexts(decide)


def _live_bytes() -> int:
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        # Other tests may have left sparse and imagined tensors behind.
        if type(thing) in {torch.Tensor, torch.nn.Parameter} and thing.layout is torch.strided:
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("batch", "tokens", "kv_heads"), [(1, 16, 4), (3, 20, 2)])
def test_the_bytes_that_torchs_selective_checkpointing_keeps(
    batch: int, tokens: int, kv_heads: int, gated: bool
) -> None:
    hidden, heads, ffn = 32, 4, 100
    block = Block(hidden, heads, kv_heads, ffn, gated=gated)
    seen: Counter[bool] = Counter()
    before = _live_bytes()
    x = torch.randn(batch, tokens, hidden, requires_grad=True)
    output = torch.utils.checkpoint.checkpoint(
        block,
        x,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: _every_second(seen),
    )
    kept_bytes = _live_bytes() - before - output.untyped_storage().nbytes()
    assert seen[False] == (7 if gated else 6)

    settings = ActivationSettings(
        batch,
        tokens,
        flash_attention=True,
        recomputation="selective",
        attention_dropout=False,
        hidden_dropout=False,
        element_bytes=4,
        selective="products",
    )
    shape = gpt(hidden_size=hidden, num_heads=heads, num_kv_heads=kv_heads, ffn_size=ffn, gated=gated)
    # Eager mode keeps the seventh product's output too.
    last = 4 * batch * tokens * hidden if gated else 0
    assert kept_bytes == layer_activation_bytes(shape, settings) + last
