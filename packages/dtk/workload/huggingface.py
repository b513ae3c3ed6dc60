"""Transformer shapes from Hugging Face configurations, without transformers.

A `config.json` is read as data; a configuration object is asked for its dictionary. What a file leaves out
has the default of the library's own class where that is a switch, and is an error where it is a size. Dropout
is ignored, an attention window and quantization too (with a warning); other types of model are refused, and
so are experts, whatever the type says.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dtk.errors import InputError
from dtk.workload.transformer import TransformerShape

__all__ = ["MODEL_TYPES", "shape_from_config", "shape_from_config_file"]

logger = logging.getLogger(__name__)

# A configuration is a few kilobytes; a wrong path may lead to a checkpoint.
_MAX_FILE_BYTES: Final = 16 * 2**20

_EXPERTS: Final = (
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "num_routed_experts",
    "moe_num_experts",
)


def shape_from_config(config: Any, *, name: str | None = None) -> TransformerShape:
    """Return the shape that a Hugging Face configuration describes.

    Args:
        config: A dictionary, or an object with `to_dict()`.
        name: What to call the shape; without it what the configuration calls itself, or its model type.

    Raises:
        InputError: If the model type is unknown, or a size is missing or does not fit.
    """
    values = config if isinstance(config, Mapping) else _to_dict(config)
    model_type = values.get("model_type")
    reader = _READERS.get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        hint = f"known ones: {', '.join(MODEL_TYPES)}; or describe the model in a TOML or YAML file"
        message = "is not a dense decoder that is known here"
        raise InputError(message, field="model_type", value=model_type, hint=hint)
    _refuse_experts(values)
    shape = reader(values)
    shape["name"] = name or values.get("_name_or_path") or model_type
    shape["source"] = f"Hugging Face configuration of type {model_type}"
    window = values.get("sliding_window")
    if window and values.get("use_sliding_window", True):
        logger.warning("the attention window of %r tokens is ignored: attention counts in full", window)
    if values.get("quantization_config"):
        logger.warning("quantization_config is ignored: weights count in the precision of the recipe")
    try:
        return TransformerShape.from_values(shape)
    except InputError as error:
        raise _in_their_words(error, values) from error


def _refuse_experts(values: Mapping[str, Any]) -> None:
    for key in _EXPERTS:
        if (count := values.get(key)) not in (None, 0, 1):
            raise InputError("experts are not described here, only dense decoders", field=key, value=count)


def _in_their_words(error: InputError, values: Mapping[str, Any]) -> InputError:
    """Return an error about a shape with the key that the configuration has for it, if it has one."""

    def named(name: str) -> str:
        return next((key for key in _THEIR_KEYS.get(name, ()) if values.get(key) is not None), name)

    field = error.field and named(error.field)
    message = re.sub(r"\w+", lambda match: named(match[0]), error.message) if field is None else error.message
    return InputError(message, field=field, value=error.value, hint=error.hint)


def shape_from_config_file(file: Path) -> TransformerShape:
    """Return the shape that a `config.json` describes.

    Raises:
        InputError: If the file cannot be read or does not describe a known model.
    """
    where = {"field": "model", "value": str(file)}
    try:
        if not file.is_file():
            raise InputError("no such file", **where)
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise InputError("is too large for a configuration", **where)
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        message = f"cannot read the file: {' '.join(str(error).split())}"
        raise InputError(message, field="model", value=str(file)) from error
    if not isinstance(values, dict):
        raise InputError("must hold a JSON object", **where)
    if "model_type" not in values:
        raise InputError("has no model_type: not a Hugging Face configuration", **where)
    parent = file.resolve().parent.name
    try:
        return shape_from_config(values, name=parent if file.name == "config.json" else file.stem)
    except InputError as error:
        field = f"model: {file}: {error.field}" if error.field else f"model: {file}"
        raise InputError(error.message, field=field, value=error.value, hint=error.hint) from error


def _to_dict(config: Any) -> Mapping[str, Any]:
    values = config.to_dict() if hasattr(config, "to_dict") else None
    if not isinstance(values, Mapping):
        raise InputError(
            "must be a configuration or a dictionary", field="config", value=type(config).__name__
        )
    return values


def _size(values: Mapping[str, Any], key: str) -> Any:
    if values.get(key) is None:
        raise InputError("is missing in the Hugging Face configuration", field=key)
    return values[key]


def _switch(values: Mapping[str, Any], key: str, default: bool) -> Any:
    value = values.get(key)
    return default if value is None else value


def _common(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_layers": _size(values, "num_hidden_layers"),
        "hidden_size": _size(values, "hidden_size"),
        "num_heads": _size(values, "num_attention_heads"),
        "vocab_size": _size(values, "vocab_size"),
        "max_positions": values.get("max_position_embeddings"),
    }


def _llama(values: Mapping[str, Any]) -> dict[str, Any]:
    attention_bias = _switch(values, "attention_bias", False)
    return _common(values) | {
        "family": "llama",
        "num_kv_heads": values.get("num_key_value_heads"),
        "head_dim": values.get("head_dim"),
        "ffn_size": _size(values, "intermediate_size"),
        "tied_embeddings": _switch(values, "tie_word_embeddings", False),
        "qkv_bias": attention_bias,
        "projection_bias": attention_bias,
        "ffn_bias": _switch(values, "mlp_bias", False),
    }


def _mistral(values: Mapping[str, Any]) -> dict[str, Any]:
    return _llama(values) | {"qkv_bias": False, "projection_bias": False, "ffn_bias": False}


def _qwen2(values: Mapping[str, Any]) -> dict[str, Any]:
    return _llama(values) | {"qkv_bias": True, "projection_bias": False, "ffn_bias": False}


def _qwen3(values: Mapping[str, Any]) -> dict[str, Any]:
    head_dim = values.get("head_dim") or 128
    return _llama(values) | {"qk_norm": True, "head_dim": head_dim, "ffn_bias": False}


def _gemma(values: Mapping[str, Any]) -> dict[str, Any]:
    head_dim = values.get("head_dim") or 256
    tied = _switch(values, "tie_word_embeddings", True)
    return _llama(values) | {"tied_embeddings": tied, "head_dim": head_dim, "ffn_bias": False}


def _internlm(values: Mapping[str, Any]) -> dict[str, Any]:
    bias = _switch(values, "bias", True)
    return _llama(values) | {"qkv_bias": bias, "projection_bias": bias, "ffn_bias": False}


def _gpt2(values: Mapping[str, Any]) -> dict[str, Any]:
    if values.get("add_cross_attention"):
        raise InputError("cross attention is not described here", field="add_cross_attention", value=True)
    hidden = _size(values, "n_embd")
    return {
        "family": "gpt",
        "num_layers": _size(values, "n_layer"),
        "hidden_size": hidden,
        "num_heads": _size(values, "n_head"),
        "ffn_size": values.get("n_inner"),
        "vocab_size": _size(values, "vocab_size"),
        "learned_positions": _size(values, "n_positions"),
        "tied_embeddings": _switch(values, "tie_word_embeddings", True),
    }


def _opt(values: Mapping[str, Any]) -> dict[str, Any]:
    bias = _switch(values, "enable_bias", True)
    before = _switch(values, "do_layer_norm_before", True)
    positions = _size(values, "max_position_embeddings")
    affine = _switch(values, "layer_norm_elementwise_affine", True)
    return _common(values) | {
        "family": "gpt",
        "ffn_size": _size(values, "ffn_dim"),
        "embedding_size": values.get("word_embed_proj_dim"),
        # Its positions count from 2: the table has two rows that no token uses.
        "learned_positions": positions + 2 if isinstance(positions, int) else positions,
        "tied_embeddings": _switch(values, "tie_word_embeddings", True),
        "qkv_bias": bias,
        "projection_bias": bias,
        "ffn_bias": bias,
        "norm": "layer" if affine else "plain",
        "final_norm": before and not _switch(values, "_remove_final_layer_norm", False),
    }


def _gpt_neox(values: Mapping[str, Any]) -> dict[str, Any]:
    bias = _switch(values, "attention_bias", True)
    return _common(values) | {
        "family": "gpt",
        "ffn_size": _size(values, "intermediate_size"),
        "tied_embeddings": _switch(values, "tie_word_embeddings", False),
        "qkv_bias": bias,
        "projection_bias": bias,
    }


_THEIR_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "num_layers": ("num_hidden_layers", "n_layer"),
        "hidden_size": ("hidden_size", "n_embd"),
        "num_heads": ("num_attention_heads", "n_head"),
        "num_kv_heads": ("num_key_value_heads",),
        "ffn_size": ("intermediate_size", "ffn_dim", "n_inner"),
        "embedding_size": ("word_embed_proj_dim",),
        "max_positions": ("max_position_embeddings",),
        "learned_positions": ("n_positions", "max_position_embeddings"),
        "tied_embeddings": ("tie_word_embeddings",),
        "qkv_bias": ("attention_bias", "enable_bias", "bias"),
        "projection_bias": ("attention_bias", "enable_bias", "bias"),
        "ffn_bias": ("mlp_bias", "enable_bias"),
    }
)
"""What configurations call the fields of a shape."""

_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = MappingProxyType(
    {
        "gemma": _gemma,
        "gpt2": _gpt2,
        "gpt_neox": _gpt_neox,
        "internlm": _internlm,
        "llama": _llama,
        "mistral": _mistral,
        "opt": _opt,
        "qwen2": _qwen2,
        "qwen3": _qwen3,
    }
)
MODEL_TYPES: Final = tuple(_READERS)
"""The `model_type`s that are read."""
