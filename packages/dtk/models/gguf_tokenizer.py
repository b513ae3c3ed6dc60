"""Read a byte-level BPE tokenizer out of a GGUF file.

Own code, because transformers' GGUF reader ignores the field `tokenizer.ggml.pre` and always splits as GPT-2
does. SmolLM splits digits off first, so that reader yields other ids wherever several spaces stand before a
digit, as they do in tables and source code.
Left out: SentencePiece and WordPiece vocabularies, splitting rules other than those of SmolLM and GPT-2.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

__all__ = ["read_tokenizer"]

# Token types of the GGUF specification.
_CONTROL, _USER_DEFINED = 3, 4


def read_tokenizer(gguf_file: Path) -> "PreTrainedTokenizerFast":
    """Return the file's tokenizer with its special tokens, chat template and length limit.

    Raises:
        ValueError: If the vocabulary is of a kind that this module does not read.
        KeyError: If a field is missing.
    """
    import gguf
    from transformers import PreTrainedTokenizerFast

    fields = gguf.GGUFReader(gguf_file).fields

    def read(name: str, default: Any = None) -> Any:
        if name not in fields and default is not None:
            return default
        return fields[name].contents()

    kind, splitting = read("tokenizer.ggml.model"), read("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or splitting not in {"smollm", "gpt-2"}:
        raise ValueError(f"tokenizer model {kind!r} with splitting rule {splitting!r} is not supported")
    if read("tokenizer.ggml.add_bos_token", False):
        raise ValueError("a tokenizer that puts a first token before every text is not supported")
    tokens = read("tokenizer.ggml.tokens")
    tokenizer = _byte_level_bpe(
        tokens,
        read("tokenizer.ggml.merges"),
        read("tokenizer.ggml.token_type"),
        split_digits=splitting == "smollm",
    )
    special = {
        f"{role}_token": tokens[read(f"tokenizer.ggml.{name}_token_id")]
        for role, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if f"tokenizer.ggml.{name}_token_id" in fields
    }
    wrapped: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        clean_up_tokenization_spaces=False,
        model_max_length=read(f"{read('general.architecture')}.context_length"),
        **special,
    )
    if "tokenizer.chat_template" in fields:
        wrapped.chat_template = read("tokenizer.chat_template")
    return wrapped


def _byte_level_bpe(
    tokens: list[str], merges: list[str], token_types: list[int], *, split_digits: bool
) -> "Tokenizer":
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    ranks = {token: index for index, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocab=ranks, merges=pairs))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level]) if split_digits else byte_level
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, token_types, strict=True):
        if kind in {_CONTROL, _USER_DEFINED}:
            tokenizer.add_tokens([AddedToken(token, special=kind == _CONTROL, normalized=False)])
    return tokenizer
