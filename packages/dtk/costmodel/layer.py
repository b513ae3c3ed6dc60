"""The time of a transformer layer, of the embedding and of the head on one tensor-parallel rank.

Tensor parallelism as in Megatron-LM (arXiv 1909.08053): two all-reduces forward and two backward; under
sequence parallelism (arXiv 2205.05198) each is a reduce-scatter and an all-gather of the same volume. Full
recomputation runs the forward again with its communication, selective recomputation the attention core. The
host launches kernels ahead of the chip: where chip and links take less time than that, the host sets the
pace. A backward pass in one piece can take less than its halves, input and weight gradients, one by one: its
weight gradients may hide communication, and the host's pace holds for both together.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dtk.costmodel.collectives import Communication
from dtk.costmodel.operations import (
    OperationTime,
    embedding_operations,
    head_operations,
    layer_operations,
)
from dtk.costmodel.placement import place_group
from dtk.costmodel.roofline import Roofline
from dtk.workload.activations import ActivationSettings
from dtk.workload.transformer import TransformerShape

__all__ = ["PartTime", "embedding_time", "head_time", "layer_time"]

# The loss over a cut vocabulary reduces the largest logit, the target's logit and the sum of exponentials.
_LOSS_REDUCTIONS = 3
_LOSS_ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class PartTime:
    """A part of the model for one micro-batch on one tensor-parallel rank.

    Attributes:
        forward_s: Forward, communication included.
        input_grad_s: Input gradients by themselves, with what is computed again before them and their
            communication.
        weight_grad_s: Weight gradients by themselves.
        backward_s: Both in one piece; their sum where nothing is said.
        communication_s: What tensor parallelism communicates, and does not hide in a backward in one piece.
        recomputed_s: Of `input_grad_s`, what is computed again.
        host_bound: Whether the host's launches set the pace somewhere.
        operations: What the chip computes.
    """

    forward_s: float
    input_grad_s: float
    weight_grad_s: float
    backward_s: float = -1.0
    communication_s: float = 0.0
    recomputed_s: float = 0.0
    host_bound: bool = False
    operations: tuple[OperationTime, ...] = ()

    def __post_init__(self) -> None:
        if self.backward_s < 0:
            object.__setattr__(self, "backward_s", self.input_grad_s + self.weight_grad_s)

    @property
    def total_s(self) -> float:
        """Forward, and backward in one piece."""
        return self.forward_s + self.backward_s


def layer_time(
    shape: TransformerShape,
    settings: ActivationSettings,
    roofline: Roofline,
    communication: Communication,
) -> PartTime:
    """Return the time of one transformer layer."""
    stack = communication.stack
    operations = layer_operations(shape, settings, roofline)
    exchange_s = _exchange_s(shape, settings, communication)
    hidden_s = 0.0
    if stack.overlap_tensor_parallel:
        # The gradients of the weights of qkv and ffn_in run while their inputs' gradients are reduced.
        hidden_s = sum(
            min(exchange_s, each.weight_grad_s) for each in operations if each.name in {"qkv", "ffn_in"}
        )
    floor_s = stack.host_layer_s + (2 * stack.host_collective_s if settings.tensor_parallel > 1 else 0.0)
    forward_s = _sum(operations, "forward_s") + 2 * exchange_s
    input_grad_s = _sum(operations, "input_grad_s") + 2 * exchange_s
    weight_grad_s = _sum(operations, "weight_grad_s")
    backward_s = input_grad_s + weight_grad_s - hidden_s
    again_s = _again_s(settings, operations, max(forward_s, floor_s), stack.selective_products)
    weight_floor_s = floor_s * _weight_grad_launches(operations)
    exchanges = 6 if settings.recomputation == "full" else 4
    return PartTime(
        max(forward_s, floor_s),
        max(input_grad_s, floor_s - weight_floor_s) + again_s,
        max(weight_grad_s, weight_floor_s),
        max(backward_s, floor_s) + again_s,
        communication_s=exchanges * exchange_s - hidden_s,
        recomputed_s=again_s,
        host_bound=min(forward_s, backward_s) < floor_s,
        operations=operations,
    )


def _weight_grad_launches(operations: Iterable[OperationTime]) -> float:
    """Return the share of weight gradients in the launches of a backward pass."""
    halves = [(1, int(each.weight_grad_s > 0)) for each in operations]
    return sum(weight for _, weight in halves) / sum(map(sum, halves))


def embedding_time(
    shape: TransformerShape,
    settings: ActivationSettings,
    roofline: Roofline,
    communication: Communication,
) -> PartTime:
    """Return the time of the embedding; cut by vocabulary, its output is summed over the ranks."""
    operations = embedding_operations(shape, settings, roofline)
    exchange_s = _exchange_s(shape, settings, communication)
    return PartTime(
        _sum(operations, "forward_s") + exchange_s,
        _sum(operations, "input_grad_s"),
        _sum(operations, "weight_grad_s"),
        communication_s=exchange_s,
        operations=operations,
    )


def head_time(
    shape: TransformerShape,
    settings: ActivationSettings,
    roofline: Roofline,
    communication: Communication,
) -> PartTime:
    """Return the time of the final norm, the output head and the loss, which are never computed again."""
    operations = head_operations(shape, settings, roofline)
    exchange_s = _exchange_s(shape, settings, communication)
    tokens = settings.micro_batch * settings.sequence_tokens
    group = place_group(communication.machine, settings.tensor_parallel, 1)
    loss_s = _LOSS_REDUCTIONS * communication.collective_s("all_reduce", _LOSS_ELEMENT_BYTES * tokens, group)
    return PartTime(
        _sum(operations, "forward_s") + loss_s,
        _sum(operations, "input_grad_s") + exchange_s,
        _sum(operations, "weight_grad_s"),
        communication_s=loss_s + exchange_s,
        operations=operations,
    )


def _exchange_s(shape: TransformerShape, settings: ActivationSettings, communication: Communication) -> float:
    """Return the time to sum a hidden state over the tensor-parallel ranks, or to scatter and gather it."""
    size_bytes = settings.element_bytes * settings.micro_batch * settings.sequence_tokens * shape.hidden_size
    group = place_group(communication.machine, settings.tensor_parallel, 1)
    if not settings.sequence_parallel:
        return communication.collective_s("all_reduce", size_bytes, group)
    return communication.collective_s("all_gather", size_bytes, group) + communication.collective_s(
        "reduce_scatter", size_bytes, group
    )


def _again_s(
    settings: ActivationSettings, operations: Iterable[OperationTime], forward_s: float, products: float
) -> float:
    """Return what recomputation takes; `products` is the stack's `selective_products`."""
    if settings.recomputation == "full":
        return forward_s
    if settings.recomputation != "selective":
        return 0.0
    if products:
        # What has weight gradients is a product with weights; the output of fused attention is kept.
        others = (each for each in operations if each.name != "flash attention")
        return sum(each.forward_s * (products if each.weight_grad_s else 1.0) for each in others)
    core = (each.forward_s for each in operations if each.part == "core")
    return 0.0 if settings.flash_attention else sum(core)


def _sum(operations: Iterable[OperationTime], pass_: str) -> float:
    return float(sum(getattr(each, pass_) for each in operations))
