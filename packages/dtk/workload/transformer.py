"""The shape of a dense decoder-only transformer: every size that counting parameters, FLOPs and bytes needs.

Two families: `gpt` (a plain MLP, biases, layer norms, learned positions; GPT-2, GPT-3, OPT, GPT-NeoX) and
`llama` (a gated MLP, no biases, RMS norms, rotary positions; Llama, Mistral, Qwen, Gemma). The family only
sets defaults. It leaves out experts, encoders, attention windows and anything that is no size.
"""

from typing import Annotated, Any, Final, Literal, Self, TypeGuard

import pydantic

from dtk.configuration import validate
from dtk.errors import InputError

__all__ = ["TransformerShape"]

# No model comes near; beyond it a slip of the keyboard would only give absurd figures.
_MAX_SIZE: Final = 2**40

Size = Annotated[int, pydantic.Field(strict=True, ge=1, le=_MAX_SIZE)]
Count = Annotated[int, pydantic.Field(strict=True, ge=0, le=_MAX_SIZE)]

_FAMILY_DEFAULTS: Final[dict[Any, dict[str, Any]]] = {
    "gpt": {
        "gated": False,
        "qkv_bias": True,
        "projection_bias": True,
        "ffn_bias": True,
        "norm": "layer",
        "tied_embeddings": True,
    },
    "llama": {
        "gated": True,
        "qkv_bias": False,
        "projection_bias": False,
        "ffn_bias": False,
        "norm": "rms",
        "tied_embeddings": False,
    },
}


class TransformerShape(pydantic.BaseModel):
    """The sizes of a dense decoder; what is left out follows from the family and the other sizes.

    Attributes:
        name: What to call it in tables.
        family: `gpt` or `llama`; sets the defaults of the switches below.
        num_layers: Transformer layers, L (l).
        hidden_size: Width of the residual stream, h.
        num_heads: Query heads, a.
        num_kv_heads: Key and value heads; without a value as many as query heads.
        head_dim: Width of a head; without a value hidden_size / num_heads.
        ffn_size: Inner width of the MLP; without a value 4h for `gpt`, required for `llama`.
        vocab_size: Tokens of the vocabulary, V (v).
        vocab_multiple: The embedding has rows up to the next multiple of this, times the tensor-parallel
            degree (Megatron-LM's padding).
        embedding_size: Width of the token embedding where it is not hidden_size (OPT-350M), which adds a
            projection at both ends; without a value hidden_size.
        max_positions: Longest sequence that the model was made for; without a value not limited.
        learned_positions: Rows of the learned position embedding; 0 for rotary or none.
        tied_embeddings: Whether the output head shares the token embedding.
        gated: Whether the MLP has a gate (three matrices, not two).
        qkv_bias: Whether query, key and value have biases.
        projection_bias: Whether the attention output projection has one.
        ffn_bias: Whether the MLP's matrices have biases.
        norm: `layer` (weight and bias), `rms` (weight) or `plain` (no parameters).
        norms_per_layer: Norms over the hidden size in a layer.
        qk_norm: Whether each head's queries and keys are normed (Qwen3).
        final_norm: Whether a norm follows the last layer.
        source: Where the sizes come from.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, pydantic.Field(min_length=1, max_length=200)] = "unnamed"
    family: Literal["gpt", "llama"]
    num_layers: Size
    hidden_size: Size
    num_heads: Size
    num_kv_heads: Size
    head_dim: Size
    ffn_size: Size
    vocab_size: Size
    vocab_multiple: Size = 1
    embedding_size: Size
    max_positions: Size | None = None
    learned_positions: Count = 0
    tied_embeddings: bool
    gated: bool
    qkv_bias: bool
    projection_bias: bool
    ffn_bias: bool
    norm: Literal["layer", "rms", "plain"]
    norms_per_layer: Count = 2
    qk_norm: bool = False
    final_norm: bool = True
    source: str = ""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        family = values.get("family")
        known = _FAMILY_DEFAULTS.get(family, {}) if isinstance(family, str) else {}
        filled: dict[str, Any] = known | {key: value for key, value in values.items() if value is not None}
        hidden, heads = filled.get("hidden_size"), filled.get("num_heads")
        if not (_is_size(hidden) and _is_size(heads)):
            return filled
        filled.setdefault("num_kv_heads", heads)
        filled.setdefault("embedding_size", hidden)
        if family == "gpt":
            filled.setdefault("ffn_size", 4 * hidden)
        if "head_dim" not in filled:
            if hidden % heads:
                message = f"hidden_size ({hidden}) must be a multiple of num_heads ({heads})"
                raise InputError(message, hint="or give head_dim")
            filled["head_dim"] = hidden // heads
        return filled

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise InputError(f"num_kv_heads ({self.num_kv_heads}) must divide num_heads ({self.num_heads})")
        return self

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Self:
        """Build a shape from plain values, such as a table of a file.

        Raises:
            InputError: For an unknown key, a missing size or one that does not fit the others.
        """
        return validate(cls, values)

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, and of all value heads."""
        return self.num_kv_heads * self.head_dim

    @property
    def sequence_limit(self) -> int | None:
        """The longest sequence in tokens, or None where nothing limits it."""
        limits = [limit for limit in (self.max_positions, self.learned_positions) if limit]
        return min(limits) if limits else None

    def padded_vocab_size(self, tensor_parallel: int = 1) -> int:
        """Return the embedding's rows: a multiple of the ranks, and of vocab_multiple on each of them."""
        multiple = self.vocab_multiple * tensor_parallel
        return -(-self.vocab_size // multiple) * multiple


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
