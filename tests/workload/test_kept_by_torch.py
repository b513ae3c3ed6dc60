"""What torch's autograd really keeps of a layer, against the count."""

import math
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
