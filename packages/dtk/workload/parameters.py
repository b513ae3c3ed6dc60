"""Exact parameter counts: by part of the model, and by pipeline stage and tensor-parallel rank.

Tensor parallelism as in Megatron-LM (arXiv 1909.08053): embedding and head are cut by vocabulary, query, key,
value and the MLP's first matrices by columns with their biases, the two output projections by rows; norms,
positions, and the biases of the row-cut matrices are held by every rank. With fewer key and value heads than
ranks, several ranks hold the same head. All ranks of a stage hold the same number of parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dtk.errors import InputError
from dtk.workload.transformer import TransformerShape

__all__ = [
    "HeldPart",
    "StageParameters",
    "count_parameters",
    "even_stages",
    "layer_parameters",
    "model_parameters",
    "stage_parameters",
]

Part = Literal[
    "embedding",
    "positions",
    "embedding_projection",
    "qkv",
    "attention_projection",
    "ffn_in",
    "ffn_out",
    "norms",
    "final_norm",
    "head_projection",
    "head",
]


@dataclass(frozen=True, slots=True)
class HeldPart:
    """What each tensor-parallel rank of a stage holds of one part.

    Attributes:
        part: The part of the model.
        per_rank: Parameters on each rank.
        copies: How many of the stage's ranks hold the same parameter.
        repeats_embedding: Whether this is a second copy of the tied embedding, on another stage.
    """

    part: Part
    per_rank: int
    copies: int
    repeats_embedding: bool = False


@dataclass(frozen=True, slots=True)
class StageParameters:
    """The parameters of one pipeline stage under tensor parallelism.

    Attributes:
        num_layers: Layers of the stage.
        tensor_parallel: Ranks that share the stage.
        parts: What each rank holds.
    """

    num_layers: int
    tensor_parallel: int
    parts: tuple[HeldPart, ...]

    @property
    def per_rank(self) -> int:
        """Parameters that each tensor-parallel rank holds."""
        return sum(part.per_rank for part in self.parts)

    @property
    def distinct(self) -> int:
        """Parameters of the model that live here, each counted once, without a repeated embedding."""
        held = (part for part in self.parts if not part.repeats_embedding)
        return sum(part.per_rank * self.tensor_parallel // part.copies for part in held)


def layer_parameters(shape: TransformerShape) -> dict[Part, int]:
    """Return the parameters of one layer by part."""
    return _sum(_layer(shape, 1), 1)


def model_parameters(shape: TransformerShape, *, padded: bool = False) -> dict[Part, int]:
    """Return the parameters of the whole model by part; tied embeddings count once.

    Args:
        shape: The model.
        padded: Whether embedding and head include the rows that pad the vocabulary.
    """
    exact = shape if padded else shape.model_copy(update={"vocab_multiple": 1})
    return _sum(stage_parameters(exact, [exact.num_layers])[0].parts, 1)


def count_parameters(shape: TransformerShape, *, padded: bool = False) -> int:
    """Return the number of parameters of the whole model."""
    return sum(model_parameters(shape, padded=padded).values())


def even_stages(num_layers: int, num_stages: int) -> list[int]:
    """Return the layers of each stage when all get the same number.

    Raises:
        InputError: If the layers do not divide by the stages.
    """
    if num_stages < 1:
        raise InputError("must be at least 1", field="num_stages", value=num_stages)
    if num_layers % num_stages:
        hint = f"a divisor of {num_layers}, or give the layers of each stage"
        message = f"must divide the {num_layers} layers"
        raise InputError(message, field="num_stages", value=num_stages, hint=hint)
    return [num_layers // num_stages] * num_stages


def stage_parameters(
    shape: TransformerShape, layers_per_stage: Sequence[int], *, tensor_parallel: int = 1
) -> list[StageParameters]:
    """Return what the tensor-parallel ranks of each pipeline stage hold.

    The first stage has the embeddings, the last the final norm and the head. If these are tied and there is
    more than one stage, the last stage holds a copy of the embedding.

    Args:
        shape: The model.
        layers_per_stage: Layers of each stage, from the first to the last; they add up to the model's.
        tensor_parallel: Ranks that share each stage, t.

    Raises:
        InputError: If layers do not add up, or heads, MLP or vocabulary do not divide by the ranks.
    """
    check_tensor_parallel(shape, tensor_parallel)
    layers = list(layers_per_stage)
    if not layers or min(layers) < 0 or sum(layers) != shape.num_layers:
        message = f"must add up to the model's {shape.num_layers} layers"
        raise InputError(message, field="layers_per_stage", value=layers)
    stages = []
    for stage, num_layers in enumerate(layers):
        parts = [
            HeldPart(part.part, part.per_rank * num_layers, part.copies)
            for part in _layer(shape, tensor_parallel)
        ]
        if stage == 0:
            parts = [*_front(shape, tensor_parallel), *parts]
        if stage == len(layers) - 1:
            parts += _back(shape, tensor_parallel, alone=len(layers) == 1)
        stages.append(StageParameters(num_layers, tensor_parallel, tuple(parts)))
    return stages


def check_tensor_parallel(shape: TransformerShape, tensor_parallel: int) -> None:
    """Refuse a tensor-parallel degree that heads or MLP do not divide by.

    Raises:
        InputError: With the size that does not divide.
    """
    field, degree = "tensor_parallel", tensor_parallel
    if degree < 1:
        raise InputError("must be at least 1", field=field, value=degree)
    for what, size in (("query heads", shape.num_heads), ("MLP columns", shape.ffn_size)):
        if size % degree:
            raise InputError(f"must divide the {size} {what}", field=field, value=degree)
    if shape.num_kv_heads % degree and degree % shape.num_kv_heads:
        message = f"must divide the {shape.num_kv_heads} key and value heads or be a multiple of them"
        raise InputError(message, field=field, value=degree)


def _layer(shape: TransformerShape, ranks: int) -> Iterator[HeldPart]:
    hidden, query = shape.hidden_size, shape.query_size // ranks
    rows = hidden + shape.qkv_bias
    yield HeldPart("qkv", rows * query, 1)
    # Each rank needs whole heads.
    kv_heads = max(1, shape.num_kv_heads // ranks)
    kv_copies = max(1, ranks // shape.num_kv_heads)
    yield HeldPart("qkv", rows * 2 * kv_heads * shape.head_dim, kv_copies)
    yield HeldPart("attention_projection", query * hidden, 1)
    ffn = shape.ffn_size // ranks
    yield HeldPart("ffn_in", (2 if shape.gated else 1) * (hidden + shape.ffn_bias) * ffn, 1)
    yield HeldPart("ffn_out", ffn * hidden, 1)
    if shape.projection_bias:
        yield HeldPart("attention_projection", hidden, ranks)
    if shape.ffn_bias:
        yield HeldPart("ffn_out", hidden, ranks)
    norms = shape.norms_per_layer * hidden + (2 * shape.head_dim if shape.qk_norm else 0)
    yield HeldPart("norms", norms * _norm_vectors(shape), ranks)


def _front(shape: TransformerShape, ranks: int) -> Iterator[HeldPart]:
    rows = shape.padded_vocab_size(ranks) // ranks
    yield HeldPart("embedding", rows * shape.embedding_size, 1)
    if shape.learned_positions:
        yield HeldPart("positions", shape.learned_positions * shape.hidden_size, ranks)
    if shape.embedding_size != shape.hidden_size:
        yield HeldPart("embedding_projection", shape.embedding_size * shape.hidden_size, ranks)


def _back(shape: TransformerShape, ranks: int, *, alone: bool) -> Iterator[HeldPart]:
    if shape.final_norm:
        yield HeldPart("final_norm", shape.hidden_size * _norm_vectors(shape), ranks)
    if shape.embedding_size != shape.hidden_size:
        yield HeldPart("head_projection", shape.embedding_size * shape.hidden_size, ranks)
    if not (shape.tied_embeddings and alone):
        rows = shape.padded_vocab_size(ranks) // ranks
        yield HeldPart("head", rows * shape.embedding_size, 1, repeats_embedding=shape.tied_embeddings)


def _norm_vectors(shape: TransformerShape) -> int:
    return {"plain": 0, "rms": 1, "layer": 2}[shape.norm]


def _sum(parts: Iterator[HeldPart] | Sequence[HeldPart], ranks: int) -> dict[Part, int]:
    counts: dict[Part, int] = {}
    for part in parts:
        counts[part.part] = counts.get(part.part, 0) + part.per_rank * ranks
    return counts
