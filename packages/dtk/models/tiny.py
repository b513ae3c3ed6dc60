"""Tiny seeded random models of the supported architectures, and a tokenizer over bytes to go with them.

For tests and for trying a command without a download. Their text is noise; their arithmetic is that of the
real architecture, with every bias and norm weight away from its trivial initial value.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtk.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = [
    "BYTE_VOCABULARY_SIZE",
    "TinyShape",
    "byte_tokenizer",
    "tiny_llama",
    "tiny_mistral",
    "tiny_model",
    "tiny_qwen2",
    "tiny_qwen3",
]

BYTE_VOCABULARY_SIZE = 258
"""256 bytes, begin of text (256), end of text and padding (257)."""

_BOS, _EOS = BYTE_VOCABULARY_SIZE - 2, BYTE_VOCABULARY_SIZE - 1
_CONFIGS = {
    "llama": "LlamaConfig",
    "mistral": "MistralConfig",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
}


@dataclass(frozen=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny model; the names are those of Hugging Face configs where they have one."""

    hidden_size: int = 64
    intermediate_size: int = 128
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    vocab_size: int = BYTE_VOCABULARY_SIZE
    context_tokens: int = 4096
    tie_embeddings: bool = False


def tiny_model(
    architecture: str, seed: int = 0, shape: TinyShape | None = None, *, attention: str = "sdpa"
) -> "PreTrainedModel":
    """Build a random causal model in fp32 on the CPU, in evaluation mode.

    The same arguments give the same weights; torch's global random state is left as it was.

    Args:
        architecture: `llama`, `mistral`, `qwen2` or `qwen3`.
        seed: Seed of the weights.
        shape: Sizes; None takes the defaults (about 0.1 million weights).
        attention: transformers' name of the attention function.

    Raises:
        InputError: If the architecture is not one of the four.
    """
    import torch
    import transformers

    if architecture not in _CONFIGS:
        raise InputError(
            "unknown architecture",
            field="architecture",
            value=architecture,
            hint=f"known: {', '.join(_CONFIGS)}",
        )
    config = getattr(transformers, _CONFIGS[architecture])(
        **_config_values(architecture, shape or TinyShape())
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation=attention, dtype=torch.float32
        )
        _unsettle(model)
    model.generation_config.pad_token_id = _EOS
    return model.eval()


def _config_values(architecture: str, shape: TinyShape) -> dict[str, Any]:
    values: dict[str, Any] = {
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.context_tokens,
        "tie_word_embeddings": shape.tie_embeddings,
        # Keeps the variance of a layer's input, so that attention scores have a spread of about 1. The
        # usual 0.02 makes them all but equal, and attention flat.
        "initializer_range": shape.hidden_size**-0.5,
        "bos_token_id": _BOS if shape.vocab_size == BYTE_VOCABULARY_SIZE else None,
        "eos_token_id": _EOS if shape.vocab_size == BYTE_VOCABULARY_SIZE else None,
        "pad_token_id": _EOS if shape.vocab_size == BYTE_VOCABULARY_SIZE else None,
    }
    if architecture == "mistral":
        values["sliding_window"] = None
    return values


def _unsettle(model: "PreTrainedModel") -> None:
    """Move biases off 0 and norm weights off 1, so that code which forgets one gives other results."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)


def tiny_llama(
    seed: int = 0, shape: TinyShape | None = None, *, attention: str = "sdpa"
) -> "PreTrainedModel":
    """Build a tiny random Llama; see `tiny_model`."""
    return tiny_model("llama", seed, shape, attention=attention)


def tiny_mistral(
    seed: int = 0, shape: TinyShape | None = None, *, attention: str = "sdpa"
) -> "PreTrainedModel":
    """Build a tiny random Mistral without a sliding window; see `tiny_model`."""
    return tiny_model("mistral", seed, shape, attention=attention)


def tiny_qwen2(
    seed: int = 0, shape: TinyShape | None = None, *, attention: str = "sdpa"
) -> "PreTrainedModel":
    """Build a tiny random Qwen2 (biases on q, k and v); see `tiny_model`."""
    return tiny_model("qwen2", seed, shape, attention=attention)


def tiny_qwen3(
    seed: int = 0, shape: TinyShape | None = None, *, attention: str = "sdpa"
) -> "PreTrainedModel":
    """Build a tiny random Qwen3 (norms on q and k); see `tiny_model`."""
    return tiny_model("qwen3", seed, shape, attention=attention)


def byte_tokenizer(context_tokens: int = TinyShape.context_tokens) -> "PreTrainedTokenizerFast":
    """Build a tokenizer whose tokens are the bytes of the UTF-8 text: token id = byte, 258 ids in all."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    for name in ("<bos>", "<eos>"):
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    wrapped: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<eos>",
        clean_up_tokenization_spaces=False,
        model_max_length=context_tokens,
    )
    return wrapped


def _byte_characters() -> list[str]:
    """Return the printable character that byte-level BPE writes for each byte (GPT-2's table)."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = [byte for byte in range(256) if byte not in kept]
    return [chr(byte) if byte in kept else chr(256 + moved.index(byte)) for byte in range(256)]
