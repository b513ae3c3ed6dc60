"""The operations of a layer, of the embedding and of the output head, with the time of each pass.

The backward pass is split as pipelines split it: input gradients (I; B in the zero-bubble papers) and weight
gradients (W). Attention without flash attention is that of Megatron-LM: two batched products with a fused
scale, mask and softmax and a dropout between them. Operations between products are counted by the elements
that they read and write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dtk.costmodel.constants import general_constants
from dtk.costmodel.roofline import Roofline
from dtk.workload.activations import ActivationSettings
from dtk.workload.flops import layer_flops
from dtk.workload.transformer import TransformerShape

__all__ = ["OperationTime", "embedding_operations", "head_operations", "layer_operations"]

Part = Literal["attention", "core", "ffn", "embedding", "head"]


@dataclass(frozen=True, slots=True)
class OperationTime:
    """One operation on one tensor-parallel rank, for one micro-batch.

    Attributes:
        name: What it is.
        part: Of the model; `core` is what selective recomputation runs again.
        forward_s: Forward.
        input_grad_s: Gradient of its input.
        weight_grad_s: Gradient of its weights.
    """

    name: str
    part: Part
    forward_s: float
    input_grad_s: float
    weight_grad_s: float = 0.0


def layer_operations(
    shape: TransformerShape, settings: ActivationSettings, roofline: Roofline
) -> tuple[OperationTime, ...]:
    """Return the operations of one transformer layer, without communication."""
    ranks, tokens = settings.tensor_parallel, settings.micro_batch * settings.sequence_tokens
    hidden, query = shape.hidden_size, shape.query_size / ranks
    qkv = query + 2 * max(shape.kv_size / ranks, shape.head_dim)
    ffn = shape.ffn_size / ranks
    ffn_in = ffn * (2 if shape.gated else 1)
    return (
        _norm(shape, settings, roofline, "attention norm", "attention"),
        _linear(roofline, "qkv", "attention", tokens, qkv, hidden),
        *_attention(shape, settings, roofline, tokens, query, qkv),
        _linear(roofline, "projection", "attention", tokens, hidden, query),
        _residual(shape, settings, roofline, "attention residual", "attention"),
        _norm(shape, settings, roofline, "ffn norm", "ffn"),
        _linear(roofline, "ffn_in", "ffn", tokens, ffn_in, hidden),
        _stream(roofline, "activation", "ffn", tokens * (ffn_in + ffn), tokens * (2 * ffn_in + ffn)),
        _linear(roofline, "ffn_out", "ffn", tokens, hidden, ffn),
        _residual(shape, settings, roofline, "ffn residual", "ffn"),
    )


def embedding_operations(
    shape: TransformerShape, settings: ActivationSettings, roofline: Roofline
) -> tuple[OperationTime, ...]:
    """Return the look-up of tokens on the first stage; its gradient is a weight gradient."""
    elements = settings.micro_batch * settings.sequence_tokens * shape.hidden_size
    once = roofline.stream_s(roofline.element_bytes * elements * 2, 2)
    operations = [OperationTime("embedding", "embedding", once, 0.0, once)]
    if shape.embedding_size != shape.hidden_size:
        tokens = settings.micro_batch * settings.sequence_tokens
        operations.append(
            _linear(roofline, "projection in", "embedding", tokens, shape.hidden_size, shape.embedding_size)
        )
    return tuple(operations)


def head_operations(
    shape: TransformerShape, settings: ActivationSettings, roofline: Roofline
) -> tuple[OperationTime, ...]:
    """Return the final norm, the product with the vocabulary and the loss on the last stage."""
    tokens = settings.micro_batch * settings.sequence_tokens
    rows = shape.padded_vocab_size(settings.tensor_parallel) / settings.tensor_parallel
    loss_s = roofline.stream_s(general_constants().loss_bytes_per_logit * tokens * rows, 8)
    projection = (
        [_linear(roofline, "projection out", "head", tokens, shape.embedding_size, shape.hidden_size)]
        if shape.embedding_size != shape.hidden_size
        else []
    )
    return (
        _norm(shape, settings, roofline, "final norm", "head"),
        *projection,
        _linear(roofline, "logits", "head", tokens, rows, shape.embedding_size),
        # Two thirds of the loss's traffic is in its forward.
        OperationTime("loss", "head", loss_s * 2 / 3, loss_s / 3),
    )


def _linear(roofline: Roofline, name: str, part: Part, m: float, n: float, k: float) -> OperationTime:
    """[m, k] times [k, n]; the gradients are [m, n] times [n, k], and [k, m] times [m, n]."""
    return OperationTime(
        name, part, roofline.matmul_s(m, n, k), roofline.matmul_s(m, k, n), roofline.matmul_s(k, n, m)
    )


def _stream(
    roofline: Roofline, name: str, part: Part, forward: float, backward: float, extra_bytes: float = 0.0
) -> OperationTime:
    """An operation that moves so many elements, and some bytes (a mask) in both passes."""
    element = roofline.element_bytes
    return OperationTime(
        name,
        part,
        roofline.stream_s(element * forward + extra_bytes),
        roofline.stream_s(element * backward + extra_bytes),
    )


def _whole(shape: TransformerShape, settings: ActivationSettings) -> float:
    """Elements of a hidden state on a rank where tensor parallelism does not cut it."""
    tokens = settings.micro_batch * settings.sequence_tokens
    return tokens * shape.hidden_size / settings.whole_ranks


def _norm(
    shape: TransformerShape, settings: ActivationSettings, roofline: Roofline, name: str, part: Part
) -> OperationTime:
    elements = _whole(shape, settings)
    return _stream(roofline, name, part, 2 * elements, 3 * elements)


def _residual(
    shape: TransformerShape, settings: ActivationSettings, roofline: Roofline, name: str, part: Part
) -> OperationTime:
    """Bias, dropout and the sum with the residual stream."""
    elements = _whole(shape, settings)
    mask_bytes = elements if settings.hidden_dropout else 0.0
    backward = (2 if settings.hidden_dropout else 0) * elements
    return _stream(roofline, name, part, 3 * elements, backward, mask_bytes)


def _attention(
    shape: TransformerShape,
    settings: ActivationSettings,
    roofline: Roofline,
    tokens: float,
    query: float,
    qkv: float,
) -> Iterator[OperationTime]:
    """From queries, keys and values to the context: laid out anew, then scores, softmax, dropout, context."""
    laid_out = 2 * tokens * (qkv + query)
    yield _stream(roofline, "layout", "attention", laid_out, laid_out)
    if settings.flash_attention:
        yield _flash(shape, settings, roofline, tokens, query, qkv)
        return
    sequence, head_dim = settings.sequence_tokens, shape.head_dim
    matrices = settings.micro_batch * query / head_dim
    scores = matrices * sequence**2
    for name, n, k in (("scores", sequence, head_dim), ("context", head_dim, sequence)):
        forward_s = roofline.matmul_s(sequence, n, k, matrices)
        backward_s = roofline.matmul_s(sequence, k, n, matrices) + roofline.matmul_s(k, n, sequence, matrices)
        yield OperationTime(name, "core", forward_s, backward_s)
    yield _stream(roofline, "softmax", "core", 2 * scores, 3 * scores)
    if settings.attention_dropout:
        yield _stream(roofline, "attention dropout", "core", 2 * scores, 2 * scores, scores)


def _flash(
    shape: TransformerShape,
    settings: ActivationSettings,
    roofline: Roofline,
    tokens: float,
    query: float,
    qkv: float,
) -> OperationTime:
    """Fused causal attention, which skips masked blocks and in its backward computes the scores again."""
    flops = layer_flops(
        shape,
        micro_batch=settings.micro_batch,
        sequence_tokens=settings.sequence_tokens,
        flash_attention=True,
        causal=True,
    )
    share = query / shape.query_size
    core = [flops["scores"], flops["context"]]
    forward = sum(each.forward_flops for each in core) * share
    backward = sum(each.input_gradient_flops + each.recomputation_flops for each in core) * share
    moved = roofline.element_bytes * tokens * (qkv + query)
    return OperationTime(
        "flash attention",
        "core",
        roofline.attention_s(forward, moved),
        roofline.attention_s(backward, 2 * moved),
    )
