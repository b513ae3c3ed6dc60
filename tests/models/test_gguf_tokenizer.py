"""The tokenizer read from GGUF against byte-level BPE written out from its definition."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtk.models import load_text
from dtk.models.gguf_tokenizer import read_tokenizer
from tests.models import bpe
from tests.models.gguf_wheel import MERGES, SPECIAL, TOKENS

VOCABULARY = {token: index for index, token in enumerate(TOKENS)}
PAIRS = [tuple(merge.split(" ")) for merge in MERGES]
PIECES = [
    *SPECIAL,
    " ",
    "  ",
    "    ",
    "the",
    " the",
    "1",
    "12",
    "½",
    "Ⅷ",
    "३",
    "ab",
    "\n\n",
    "\t",
    "'s",
    "'ll",
    "é",
    "你",
    "🙂",
    "!?",
]


def _is_old(character):
    # Python and the tokenizers library know different versions of Unicode; what 3.2 knew has not moved since.
    old, new = unicodedata.ucd_3_2_0.category(character), unicodedata.category(character)
    return old == new and old not in {"Cn", "Cs"}


CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"]).filter(_is_old)


def _expected(text):
    return bpe.encode(text, VOCABULARY, PAIRS, SPECIAL)


@pytest.fixture(scope="module")
def tokenizer(tiny_wheel):
    return read_tokenizer(tiny_wheel.gguf_file)


@settings(max_examples=300)
@given(text=st.one_of(st.lists(st.sampled_from(PIECES)).map("".join), st.text(CHARACTERS, max_size=30)))
def test_ids_and_round_trip(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids == _expected(text)
    assert tokenizer.decode(ids) == text


def test_digits_stand_alone(tokenizer):
    # "1 2" is a merge of this vocabulary, and the run of spaces must not give one up to the digit after it.
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]


def test_real_text(tokenizer):
    text = load_text("python-docs").text[:20_000]
    assert tokenizer(text)["input_ids"] == _expected(text)


def test_the_oracle_knows_every_byte():
    assert sorted(bpe.byte_character(byte) for byte in range(256)) == sorted(
        TOKENS[len(SPECIAL) : len(SPECIAL) + 256]
    )
