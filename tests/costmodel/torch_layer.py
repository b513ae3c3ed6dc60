"""One rank's layer in torch, and what torch counts of it: the oracle of the cost model's operations."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from dtk.workload.activations import ActivationSettings
from dtk.workload.transformer import TransformerShape


@dataclass(frozen=True)
class PassFlops:
    """FLOPs of each pass."""

    forward: int
    input_grad: int
    weight_grad: int


def count_flops(
    run: Callable[[Tensor, list[Tensor]], Tensor], inputs: Tensor, weights: list[Tensor]
) -> PassFlops:
    """Count what torch's dispatcher sees; input gradients are what a backward to the inputs alone takes."""

    def backward(*targets: Tensor) -> int:
        output = run(inputs, weights)
        with FlopCounterMode(display=False) as counter:
            torch.autograd.grad(output, targets, torch.empty_like(output))
        return int(counter.get_total_flops())

    with FlopCounterMode(display=False) as counter:
        run(inputs, weights)
    to_inputs = backward(inputs)
    return PassFlops(counter.get_total_flops(), to_inputs, backward(inputs, *weights) - to_inputs)


def layer_flops_by_torch(shape: TransformerShape, settings: ActivationSettings) -> PassFlops:
    """Count a rank's layer: Megatron's cuts, keys and values of whole heads, attention without a kernel."""
    ranks, hidden = settings.tensor_parallel, shape.hidden_size
    heads, kv_heads = shape.num_heads // ranks, max(1, shape.num_kv_heads // ranks)
    ffn, width = shape.ffn_size // ranks, shape.head_dim

    def run(inputs: Tensor, weights: list[Tensor]) -> Tensor:
        query, key, value, projection, ffn_in, ffn_out = weights
        batch, tokens, _ = inputs.shape

        def cut(weight: Tensor, number: int) -> Tensor:
            each = F.linear(inputs, weight).view(batch, tokens, number, width).transpose(1, 2)
            return each.repeat_interleave(heads // number, dim=1)

        scores = torch.matmul(cut(query, heads), cut(key, kv_heads).transpose(-1, -2)).softmax(-1)
        context = torch.matmul(scores, cut(value, kv_heads)).transpose(1, 2).reshape(batch, tokens, -1)
        middle = F.linear(F.linear(context, projection), ffn_in)
        return F.linear(F.glu(middle) if shape.gated else F.gelu(middle), ffn_out)

    with FakeTensorMode():
        weights = [
            torch.empty(*size, requires_grad=True)
            for size in (
                (heads * width, hidden),
                (kv_heads * width, hidden),
                (kv_heads * width, hidden),
                (hidden, heads * width),
                (ffn * (2 if shape.gated else 1), hidden),
                (hidden, ffn),
            )
        ]
        inputs = torch.empty(settings.micro_batch, settings.sequence_tokens, hidden, requires_grad=True)
        return count_flops(run, inputs, weights)


def flash_flops_by_torch(shape: TransformerShape, settings: ActivationSettings) -> PassFlops:
    """Count the fused attention kernel of a rank with all pairs of tokens, as torch does under a mask too."""
    heads = shape.num_heads // settings.tensor_parallel
    size = (settings.micro_batch, heads, settings.sequence_tokens, shape.head_dim)
    query, key, value = (torch.empty(*size, device="meta", requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as forward:
        output = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]
    with FlopCounterMode(display=False) as backward:
        torch.autograd.grad(output, (query, key, value), torch.empty_like(output))
    return PassFlops(forward.get_total_flops(), backward.get_total_flops(), 0)


@dataclass(frozen=True)
class Traffic:
    """Bytes that a fused kernel cannot avoid: what goes in, what comes out, what it keeps."""

    forward: int
    backward: int


def count_traffic(run: Callable[..., Tensor], *inputs: Tensor, smallest: int) -> Traffic:
    """Count bytes of a region as one kernel each way; tensors of less than `smallest` elements are left out.

    The backward reads what autograd saved and the gradient of the output, and writes those gradients that are
    not the output's own.
    """
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        output = run(*inputs)
    gradient = torch.ones_like(output)
    gradients = torch.autograd.grad(output, inputs, gradient)
    forward = [*inputs, output, *(each for each in kept if each.dtype == torch.bool)]
    touched = [*kept, *gradients]
    # Handing the gradient on as it is takes no kernel.
    backward = [gradient, *touched] if any(each is not gradient for each in gradients) else []
    backward = [each for each in backward if each is gradient or each.data_ptr() != gradient.data_ptr()]
    return Traffic(_bytes(forward, smallest), _bytes(backward, smallest))


def _bytes(tensors: list[Tensor], smallest: int) -> int:
    different = {each.data_ptr(): each for each in tensors if each.numel() >= smallest}
    return sum(each.numel() * each.element_size() for each in different.values())
