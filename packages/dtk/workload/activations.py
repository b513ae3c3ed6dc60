"""Bytes of activations that training keeps for the backward pass (Korthikanti et al., arXiv 2205.05198).

Each tensor that a layer keeps is counted, so that grouped heads, gated MLPs and any MLP width fit in; for a
GPT with a 4h MLP and dropout this gives the paper's table 2, s b h (10 + 24/t + 5 a s/(h t)) and so on. A
gated MLP is taken to be fused, as in Megatron-LM: its activation keeps its two inputs and its output.

Selective recomputation drops the attention core, as the paper has it, or follows torch's selective activation
checkpointing as torchtitan sets it up (`apply_ac`): of the products with weights, in the order query, key,
value, projection, gate, up, down, every second is run again, so that the outputs of key, projection and up
are dropped, and with them all between the products. It keeps the layer's input, query, value, the output of
fused attention with its log-sum-exp, the gate's output, and under sequence parallelism what the two
reduce-scatters return. The last product's output, which no backward needs, is dropped by torch.compile; eager
mode keeps it all the same where its turn is to be kept, which is not counted.

It leaves out temporary buffers, the allocator's fragmentation and context parallelism.
"""

from dataclasses import dataclass
from typing import Final, Literal

from dtk.errors import InputError
from dtk.workload.flops import Recomputation
from dtk.workload.parameters import check_tensor_parallel
from dtk.workload.transformer import TransformerShape

__all__ = [
    "ActivationSettings",
    "KeptTensor",
    "in_flight_chunks",
    "kept_tensors",
    "layer_activation_bytes",
    "rank_activation_bytes",
]

_MASK_BYTES: Final = 1
_LSE_BYTES: Final = 4
_LOSS_BYTES: Final = 4

Block = Literal["attention", "core", "ffn"]
Selective = Literal["core", "products"]


@dataclass(frozen=True, slots=True)
class ActivationSettings:
    """How a micro-batch is run, as far as activations depend on it.

    Attributes:
        micro_batch: Sequences, b.
        sequence_tokens: Tokens of each, s.
        tensor_parallel: Ranks that share each layer, t.
        sequence_parallel: Whether what tensor parallelism leaves whole is cut along the sequence.
        recomputation: What the backward pass computes again.
        flash_attention: Whether attention keeps no scores, only the log-sum-exp of each row.
        attention_dropout: Whether the scores have dropout, with a mask of one byte each.
        hidden_dropout: Whether attention, MLP and embedding end in dropout, with a mask of one byte each.
        element_bytes: Bytes of an activation: 2 for fp16 and bf16.
        selective: What selective recomputation runs again: the attention core, or every second product with
            weights and all between them but fused attention.
    """

    micro_batch: int
    sequence_tokens: int
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    recomputation: Recomputation = "none"
    flash_attention: bool = False
    attention_dropout: bool = True
    hidden_dropout: bool = True
    element_bytes: int = 2
    selective: Selective = "core"

    def __post_init__(self) -> None:
        for field in ("micro_batch", "sequence_tokens", "tensor_parallel", "element_bytes"):
            if getattr(self, field) < 1:
                raise InputError("must be at least 1", field=field, value=getattr(self, field))
        if self.sequence_parallel and self.sequence_tokens % self.tensor_parallel:
            message = (
                f"must divide the {self.sequence_tokens} tokens of a sequence under sequence parallelism"
            )
            raise InputError(message, field="tensor_parallel", value=self.tensor_parallel)

    @property
    def whole_ranks(self) -> int:
        """By how many ranks that is divided which tensor parallelism alone leaves whole."""
        return self.tensor_parallel if self.sequence_parallel else 1


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """One tensor that a layer keeps for its backward pass, if nothing is computed again.

    Attributes:
        name: What it is.
        block: The part of the layer; `core` is what selective recomputation drops.
        size_bytes: Bytes on each rank.
    """

    name: str
    block: Block
    size_bytes: int


def kept_tensors(shape: TransformerShape, settings: ActivationSettings) -> list[KeptTensor]:
    """Return the tensors that one layer keeps on each rank for one micro-batch without recomputation.

    Raises:
        InputError: If heads or MLP do not divide by the tensor-parallel degree.
    """
    check_tensor_parallel(shape, settings.tensor_parallel)
    tokens = settings.micro_batch * settings.sequence_tokens
    whole = tokens * shape.hidden_size // settings.whole_ranks
    element = settings.element_bytes
    norm_inputs = "norm's input"
    tensors = [
        KeptTensor(f"attention {norm_inputs}", "attention", element * whole),
        KeptTensor("input of query, key and value", "attention", element * whole),
        *_attention(shape, settings, tokens),
        KeptTensor(f"MLP {norm_inputs}", "ffn", element * whole),
        *_ffn(shape, settings, tokens, whole),
    ]
    if settings.hidden_dropout:
        tensors.append(KeptTensor("attention dropout mask", "attention", _MASK_BYTES * whole))
        tensors.append(KeptTensor("MLP dropout mask", "ffn", _MASK_BYTES * whole))
    return [tensor for tensor in tensors if tensor.size_bytes]


def layer_activation_bytes(shape: TransformerShape, settings: ActivationSettings) -> int:
    """Return the bytes that one layer keeps on each rank for one micro-batch.

    Under full recomputation that is the layer's input (cut along the sequence under sequence parallelism).
    While its backward pass runs, one layer in addition holds what it keeps without recomputation.
    """
    if settings.recomputation == "full":
        check_tensor_parallel(shape, settings.tensor_parallel)
        tokens = settings.micro_batch * settings.sequence_tokens
        return settings.element_bytes * (tokens * shape.hidden_size // settings.whole_ranks)
    if settings.recomputation == "selective" and settings.selective == "products":
        return sum(tensor.size_bytes for tensor in _beside_products(shape, settings))
    dropped = {"core"} if settings.recomputation == "selective" else set()
    return sum(t.size_bytes for t in kept_tensors(shape, settings) if t.block not in dropped)


def _beside_products(shape: TransformerShape, settings: ActivationSettings) -> list[KeptTensor]:
    """Return what a layer keeps where every second product with weights is run again."""
    check_tensor_parallel(shape, settings.tensor_parallel)
    tokens, element = settings.micro_batch * settings.sequence_tokens, settings.element_bytes
    whole = element * (tokens * shape.hidden_size // settings.whole_ranks)
    names = {"query", "value"}
    if settings.flash_attention:
        names |= {"projection's input", "log-sum-exp"}
    inner = element * (tokens * shape.ffn_size // settings.tensor_parallel)
    kept = [
        KeptTensor("layer's input", "attention", whole),
        *(tensor for tensor in _attention(shape, settings, tokens) if tensor.name in names),
        KeptTensor("first MLP product's output", "ffn", inner),
    ]
    if settings.whole_ranks > 1:
        kept.append(KeptTensor("attention's output after its reduce-scatter", "attention", whole))
        kept.append(KeptTensor("MLP's output after its reduce-scatter", "ffn", whole))
    return kept


def in_flight_chunks(num_ranks: int, rank: int, num_chunks: int, num_microbatches: int) -> int:
    """Return how many chunk activations a rank of (interleaved) 1F1B holds at most.

    A chunk activation is one micro-batch through one of the rank's chunks. For rank 0 and enough
    micro-batches this is P for one chunk, else V P + P - 1: the paper's factor 1 + (P - 1)/(P V) on the
    activations of all L layers. For other schedules ask the pipeline simulator.

    Args:
        num_ranks: Pipeline ranks, P.
        rank: The rank, from 0.
        num_chunks: Model chunks of a rank, V.
        num_microbatches: Micro-batches of an iteration, M.

    Raises:
        InputError: If there is no such rank, or a count is not positive.
    """
    if not (0 <= rank < num_ranks and num_chunks >= 1 and num_microbatches >= 1):
        place = f"rank {rank} of {num_ranks}, {num_chunks} chunks, {num_microbatches} micro-batches"
        raise InputError("no such place in a pipeline", field="rank", value=place)
    if num_chunks == 1:
        return min(num_microbatches, num_ranks - rank)
    warm_up = (num_chunks - 1) * num_ranks + 2 * (num_ranks - 1 - rank)
    return min(num_chunks * num_microbatches, warm_up + 1)


def rank_activation_bytes(
    shape: TransformerShape,
    settings: ActivationSettings,
    *,
    layers_per_chunk: int,
    chunks_in_flight: int,
    embedding_in_flight: int = 0,
    head_in_flight: int = 0,
    working_layer: bool = False,
) -> int:
    """Return the bytes of activations that a rank holds at its peak.

    Args:
        shape: The model.
        settings: How a micro-batch is run.
        layers_per_chunk: Layers of each of the rank's chunks.
        chunks_in_flight: Chunk activations held at once (`in_flight_chunks`, or a schedule's own figure).
        embedding_in_flight: Micro-batches whose embedding dropout mask is held, on the first stage.
        head_in_flight: Micro-batches whose final norm, head and fp32 logits are held, on the last stage;
            one, or none where the loss is elsewhere.
        working_layer: Whether to add what recomputation restores of one layer during its backward pass. The
            paper's table leaves it out.
    """
    layers = layers_per_chunk * chunks_in_flight * layer_activation_bytes(shape, settings)
    ends = embedding_in_flight * _embedding_bytes(shape, settings)
    ends += head_in_flight * _head_bytes(shape, settings)
    restored = 0
    if working_layer and layers_per_chunk:
        everything = sum(tensor.size_bytes for tensor in kept_tensors(shape, settings))
        restored = everything - layer_activation_bytes(shape, settings)
    return layers + ends + restored


def _attention(shape: TransformerShape, settings: ActivationSettings, tokens: int) -> list[KeptTensor]:
    ranks, element = settings.tensor_parallel, settings.element_bytes
    query = tokens * shape.query_size // ranks
    kv = tokens * max(1, shape.num_kv_heads // ranks) * shape.head_dim
    rows = tokens * shape.num_heads // ranks
    scores = rows * settings.sequence_tokens
    tensors = [
        KeptTensor("query", "attention", element * query),
        KeptTensor("key", "attention", element * kv),
        KeptTensor("value", "attention", element * kv),
        KeptTensor("projection's input", "attention", element * query),
    ]
    if settings.flash_attention:
        # Dropout inside such a kernel keeps the random generator's state, not a mask.
        return [*tensors, KeptTensor("log-sum-exp", "attention", _LSE_BYTES * rows)]
    tensors.append(KeptTensor("softmax", "core", element * scores))
    if settings.attention_dropout:
        tensors.append(KeptTensor("scores' dropout mask", "core", _MASK_BYTES * scores))
        tensors.append(KeptTensor("scores after dropout", "core", element * scores))
    return tensors


def _ffn(shape: TransformerShape, settings: ActivationSettings, tokens: int, whole: int) -> list[KeptTensor]:
    element = settings.element_bytes
    inner = element * (tokens * shape.ffn_size // settings.tensor_parallel)
    return [
        KeptTensor("MLP's input", "ffn", element * whole),
        KeptTensor("activation function's input", "ffn", inner * (2 if shape.gated else 1)),
        KeptTensor("second matrix's input", "ffn", inner),
    ]


def _embedding_bytes(shape: TransformerShape, settings: ActivationSettings) -> int:
    if not settings.hidden_dropout:
        return 0
    tokens = settings.micro_batch * settings.sequence_tokens
    return _MASK_BYTES * (tokens * shape.hidden_size // settings.whole_ranks)


def _head_bytes(shape: TransformerShape, settings: ActivationSettings) -> int:
    """Final norm's input, head's input and fp32 logits: 4 s b h (1 + v/h)/t in the paper."""
    tokens, ranks = settings.micro_batch * settings.sequence_tokens, settings.tensor_parallel
    hidden = tokens * shape.hidden_size // settings.whole_ranks
    logits = tokens * (shape.padded_vocab_size(ranks) // ranks)
    norms = 2 if shape.final_norm else 1
    return settings.element_bytes * norms * hidden + _LOSS_BYTES * logits
