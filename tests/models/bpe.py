"""Byte-level BPE from its definition, slow and plain, as an oracle for the tokenizers that dtk writes."""

import itertools
import unicodedata

_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def encode(
    text: str, vocabulary: dict[str, int], merges: list[tuple[str, str]], special: list[str]
) -> list[int]:
    """Return the ids of `text` under SmolLM's rules: special tokens, digits apart, GPT-2's words, merges."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    ids: list[int] = []
    for piece in split_special(text, special):
        if piece in special:
            ids.append(vocabulary[piece])
            continue
        for word in (word for part in split_digits(piece) for word in split_words(part)):
            ids.extend(vocabulary[token] for token in merge(word, ranks))
    return ids


def split_special(text: str, special: list[str]) -> list[str]:
    pieces, rest = [], text
    while rest:
        hits = [(rest.index(token), -len(token), token) for token in special if token in rest]
        if not hits:
            return [*pieces, rest]
        start, _, token = min(hits)
        pieces += [rest[:start], token] if start else [token]
        rest = rest[start + len(token) :]
    return pieces


def is_number(character: str) -> bool:
    return unicodedata.category(character)[0] == "N"


def kind(character: str) -> str:
    """Return the class that GPT-2's pattern sees: letter, number, space or other."""
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f":
        return "space"
    return {"L": "letter", "N": "number"}.get(unicodedata.category(character)[0], "other")


def split_digits(text: str) -> list[str]:
    parts: list[str] = []
    for index, character in enumerate(text):
        if index and not is_number(character) and not is_number(text[index - 1]):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def split_words(text: str) -> list[str]:
    r"""Split as GPT-2 does: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+."""
    words, start = [], 0
    while start < len(text):
        end = _word_end(text, start)
        words.append(text[start:end])
        start = end
    return words


def _word_end(text: str, start: int) -> int:
    for contraction in _CONTRACTIONS:
        if text.startswith(contraction, start):
            return start + len(contraction)
    first = start + 1 if text[start] == " " and start + 1 < len(text) else start
    if kind(text[first]) != "space":
        return _run_end(text, first)
    end = _run_end(text, start)
    # A run of spaces leaves its last one to the word that follows, unless it is the only one.
    return end - 1 if end < len(text) and end - start > 1 else end


def _run_end(text: str, start: int) -> int:
    end = start + 1
    while end < len(text) and kind(text[end]) == kind(text[start]):
        end += 1
    return end


def merge(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """Merge the word's bytes, the lowest rank first, leftmost first."""
    tokens = [byte_character(byte) for byte in word.encode()]
    while True:
        pairs = [
            (ranks[pair], index) for index, pair in enumerate(itertools.pairwise(tokens)) if pair in ranks
        ]
        if not pairs:
            return tokens
        _, index = min(pairs)
        tokens[index : index + 2] = [tokens[index] + tokens[index + 1]]


def byte_character(byte: int) -> str:
    """Return GPT-2's stand-in of a byte: itself if printable in Latin-1, else 256 and up in order."""
    if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
        return chr(byte)
    if byte <= 32:
        return chr(256 + byte)
    return chr(256 + 33 + byte - 127) if byte <= 160 else chr(256 + 33 + 34)
