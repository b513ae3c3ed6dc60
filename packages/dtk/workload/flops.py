"""Floating-point operations of a transformer, by operation and pass, and the three published conventions.

A multiplication with its addition counts two. Only matrix products count, as in all three conventions: norms,
softmax, activation functions and the optimizer are bound by memory. For products of two activations (scores
and context) the gradients of both are input gradients.
"""

from dataclasses import dataclass
from typing import Literal

from dtk.workload.parameters import count_parameters
from dtk.workload.transformer import TransformerShape

__all__ = [
    "Operation",
    "OperationFlops",
    "Recomputation",
    "layer_flops",
    "logits_flops",
    "megatron_hardware_flops",
    "megatron_model_flops",
    "model_flops",
    "mosaic_flops",
]

Operation = Literal["qkv", "scores", "context", "projection", "ffn_in", "ffn_out", "logits"]
Recomputation = Literal["none", "selective", "full"]
"""What the backward pass computes again (selective means the attention core, scores to context)."""


@dataclass(frozen=True, slots=True)
class OperationFlops:
    """What one operation costs.

    Attributes:
        forward_flops: The forward pass.
        input_gradient_flops: The gradients of its inputs (I; B in the zero-bubble papers).
        weight_gradient_flops: The gradient of its weights (W).
        recomputation_flops: What the backward pass computes again.
    """

    forward_flops: int
    input_gradient_flops: int
    weight_gradient_flops: int
    recomputation_flops: int

    @property
    def total_flops(self) -> int:
        """All passes."""
        backward_flops = self.input_gradient_flops + self.weight_gradient_flops
        return self.forward_flops + backward_flops + self.recomputation_flops


def layer_flops(
    shape: TransformerShape,
    *,
    micro_batch: int,
    sequence_tokens: int,
    recomputation: Recomputation = "none",
    flash_attention: bool = False,
    causal: bool = False,
) -> dict[Operation, OperationFlops]:
    """Return the operations of one layer for one micro-batch.

    Args:
        shape: The model.
        micro_batch: Sequences, b.
        sequence_tokens: Tokens of each, s.
        recomputation: What the backward pass computes again.
        flash_attention: Whether the attention kernel computes the scores again in its backward pass
            (FlashAttention, arXiv 2205.14135), which comes on top of any recomputation.
        causal: Whether scores and context count only what a causal mask leaves, s(s + 1)/2 of s^2 pairs, as
            kernels that skip masked blocks do. The published conventions count all pairs.
    """
    tokens = micro_batch * sequence_tokens
    pairs = micro_batch * (sequence_tokens * (sequence_tokens + 1) // 2 if causal else sequence_tokens**2)
    hidden, ffn = shape.hidden_size, shape.ffn_size
    forward: dict[Operation, int] = {
        "qkv": 2 * tokens * hidden * (shape.query_size + 2 * shape.kv_size),
        "scores": 2 * pairs * shape.query_size,
        "context": 2 * pairs * shape.query_size,
        "projection": 2 * tokens * shape.query_size * hidden,
        "ffn_in": 2 * tokens * hidden * ffn * (2 if shape.gated else 1),
        "ffn_out": 2 * tokens * ffn * hidden,
    }
    flops: dict[Operation, OperationFlops] = {}
    for operation, once in forward.items():
        core = operation in {"scores", "context"}
        again = once if recomputation == "full" or (recomputation == "selective" and core) else 0
        if flash_attention and operation == "scores":
            again += once
        flops[operation] = OperationFlops(once, 2 * once if core else once, 0 if core else once, again)
    return flops


def logits_flops(
    shape: TransformerShape, *, micro_batch: int, sequence_tokens: int, tensor_parallel: int = 1
) -> OperationFlops:
    """Return the output head of one micro-batch, all ranks together, the padded vocabulary included.

    Projections to and from an embedding of another width are in it. The head is never computed again.
    """
    tokens = micro_batch * sequence_tokens
    once = 2 * tokens * shape.embedding_size * shape.padded_vocab_size(tensor_parallel)
    if shape.embedding_size != shape.hidden_size:
        once += 2 * (2 * tokens * shape.embedding_size * shape.hidden_size)
    return OperationFlops(once, once, once, 0)


def model_flops(
    shape: TransformerShape,
    *,
    batch: int,
    sequence_tokens: int,
    recomputation: Recomputation = "none",
    flash_attention: bool = False,
    causal: bool = False,
) -> int:
    """Return all passes of one training iteration over `batch` sequences, added up by operation."""
    layer = layer_flops(
        shape,
        micro_batch=batch,
        sequence_tokens=sequence_tokens,
        recomputation=recomputation,
        flash_attention=flash_attention,
        causal=causal,
    )
    logits = logits_flops(shape, micro_batch=batch, sequence_tokens=sequence_tokens)
    return shape.num_layers * sum(flops.total_flops for flops in layer.values()) + logits.total_flops


def megatron_hardware_flops(shape: TransformerShape, *, batch: int, sequence_tokens: int) -> float:
    """Return F = 96 B s l h^2 (1 + s/(6h) + V/(16 l h)): four passes over the layers, full recomputation.

    Source: arXiv 2104.04473 (SC'21), whose TFLOP/s are counted so ("F-2021"). It holds for a GPT whose MLP is
    4h wide; any other shape is counted as if it were one.
    """
    hidden, layers, sequence = shape.hidden_size, shape.num_layers, sequence_tokens
    rest = 1 + sequence / (6 * hidden) + shape.padded_vocab_size() / (16 * layers * hidden)
    return 96 * batch * sequence * layers * hidden**2 * rest


def megatron_model_flops(shape: TransformerShape, *, batch: int, sequence_tokens: int) -> float:
    """Return F = 72 B L s h^2 (1 + s/(6h) + V/(12 h L)): three passes, whatever is computed again.

    Source: arXiv 2205.05198, appendix A ("F-model"). It holds for a GPT whose MLP is 4h wide; any other
    shape is counted as if it were one.
    """
    hidden, layers, sequence = shape.hidden_size, shape.num_layers, sequence_tokens
    rest = 1 + sequence / (6 * hidden) + shape.padded_vocab_size() / (12 * hidden * layers)
    return 72 * batch * layers * sequence * hidden**2 * rest


def mosaic_flops(
    shape: TransformerShape, *, batch: int, sequence_tokens: int, recomputed: bool = False
) -> int:
    """Return 3 (2 N s) + 3 (4 L h s^2) for each sequence, with N all parameters.

    Source: the benchmark tables of mosaicml/llm-foundry (scripts/train/benchmarking). Its MFU uses the factor
    3, its HFU under activation checkpointing 4 (`recomputed`). N includes the embedding, which multiplies
    nothing, and tied embeddings count once.
    """
    passes = 4 if recomputed else 3
    tokens_term = 2 * count_parameters(shape) * sequence_tokens
    attention_term = 4 * shape.num_layers * shape.hidden_size * sequence_tokens**2
    return batch * passes * (tokens_term + attention_term)
