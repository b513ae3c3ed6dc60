"""Adapter to transformers' causal models: which are supported, and how to predict the next layer's query."""

import inspect
import sys
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers.cache_utils import get_layer_types_and_kwargs

from dtk.errors import InputError

__all__ = ["SUPPORTED_MODEL_TYPES", "DecoderLayers", "cache_argument", "decoder_layers", "predict_query"]

SUPPORTED_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose decoder layers have the parts that `predict_query` needs."""


@dataclass(frozen=True)
class DecoderLayers:
    """A supported model's decoder layers.

    Attributes:
        modules: The decoder layers in order.
        sliding_windows: The window of each layer with sliding-window attention, None for full attention.
    """

    modules: list[nn.Module]
    sliding_windows: list[int | None]


def decoder_layers(model: nn.Module) -> DecoderLayers:
    """Return the decoder layers of a supported Hugging Face causal model.

    Raises:
        InputError: If the model is of another type.
    """
    config: Any = getattr(model, "config", None)
    model_type = getattr(config, "model_type", type(model).__name__)
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise InputError(
            "this model type is not supported",
            field="model",
            value=model_type,
            hint=f"supported: {', '.join(SUPPORTED_MODEL_TYPES)}",
        )
    types, arguments = get_layer_types_and_kwargs(config)
    windows = [kwargs.get("sliding_window") for kwargs in arguments]
    unknown = sorted(set(types) - {"full_attention", "sliding_attention"})
    if unknown:
        raise InputError("this kind of attention layer is not supported", field="model", value=unknown[0])
    return DecoderLayers(list(_decoder(model).layers), windows)


def predict_query(
    source: nn.Module,
    target: nn.Module,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    norm: Literal["target", "source"],
) -> Tensor:
    """Predict the target layer's query from the input of the layer before it (section 3.3).

    The target's query projection, with its bias, its per-head norm (Qwen3) and RoPE at the token's position,
    is applied to the source layer's normed input.

    Args:
        source: The decoder layer whose input `hidden_states` is.
        target: The decoder layer whose query is wanted, the one after `source`.
        hidden_states: [batch, 1, hidden size].
        position_embeddings: RoPE's cosine and sine, as the model hands them to its layers.
        norm: Whose input layer norm to apply.

    Returns:
        [batch, query heads, head size].
    """
    attention: Any = target.self_attn
    normed = (target if norm == "target" else source).input_layernorm(hidden_states)  # type: ignore[operator]
    query: Tensor = attention.q_proj(normed).unflatten(-1, (-1, attention.head_dim))
    if hasattr(attention, "q_norm"):
        query = attention.q_norm(query)
    rotate: Any = vars(sys.modules[type(attention).__module__])["apply_rotary_pos_emb"]
    rotated, _ = rotate(query.transpose(1, 2), query.transpose(1, 2), *position_embeddings)
    return torch.squeeze(rotated, 2)


def cache_argument(model: nn.Module) -> str:
    """Return the model's cache argument: `cache` since transformers 5.24, `past_key_values` before."""
    parameters = inspect.signature(_decoder(model).forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def _decoder(model: nn.Module) -> Any:
    """Return the model without its head; a model that has none is returned as it is."""
    return getattr(model, str(getattr(model, "base_model_prefix", "model")), model)
