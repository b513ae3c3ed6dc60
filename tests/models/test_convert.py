import json

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dtk.errors import RunFailedError
from dtk.models.convert import convert_gguf
from dtk.models.gguf_tokenizer import read_tokenizer
from tests.models.gguf_wheel import CHAT_TEMPLATE, HEADS, KV_HEADS, permuted, unpermuted


@pytest.fixture(scope="module")
def converted(tiny_wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted")
    convert_gguf(tiny_wheel.gguf_file, folder)
    return folder


def test_weights_are_bitwise_those_of_gguf(tiny_wheel, converted):
    state = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32).state_dict()
    assert torch.equal(state.pop("lm_head.weight"), state["model.embed_tokens.weight"])
    assert state.keys() == tiny_wheel.weights.keys()
    for name, expected in tiny_wheel.weights.items():
        assert torch.equal(state[name], torch.from_numpy(expected)), name


def test_the_permutation_of_the_fixture_is_no_identity(tiny_wheel):
    weight = tiny_wheel.weights["model.layers.0.self_attn.q_proj.weight"]
    for heads in (HEADS, KV_HEADS):
        assert (permuted(weight, heads) != weight).any()
        assert (unpermuted(permuted(weight, heads), heads) == weight).all()


def test_config_is_plain(converted):
    config = json.loads((converted / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["rms_norm_eps"] == 1e-5
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert config["max_position_embeddings"] == 512
    assert not list(converted.glob("*.bin"))


def test_float16_would_lose_bits(tiny_wheel):
    weight = torch.from_numpy(tiny_wheel.weights["model.layers.0.mlp.up_proj.weight"])
    assert (weight.half().float() != weight).any()


def test_tokenizer_survives_the_folder(tiny_wheel, converted):
    fresh, saved = read_tokenizer(tiny_wheel.gguf_file), AutoTokenizer.from_pretrained(converted)
    text = "the  12 a  b\n\n  the <|im_end|> 1"
    assert fresh(text)["input_ids"] == saved(text)["input_ids"]
    assert saved.chat_template == CHAT_TEMPLATE
    assert saved.model_max_length == 512
    assert (saved.bos_token_id, saved.eos_token_id, saved.unk_token_id, saved.pad_token_id) == (1, 2, 0, 2)
    assert saved.decode([1, 3, 2], skip_special_tokens=True) == saved.decode([3])


def _write(path, **tokenizer):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(16)
    for key, value in tokenizer.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_foreign_tokenizers_are_refused(tmp_path):
    llama = _write(tmp_path / "a.gguf", tokenizer_model="llama", tokenizer_pre="default")
    with pytest.raises(ValueError, match="'llama' with splitting rule 'default'"):
        read_tokenizer(llama)
    qwen = _write(tmp_path / "b.gguf", tokenizer_model="gpt2", tokenizer_pre="qwen2")
    with pytest.raises(ValueError, match="'gpt2' with splitting rule 'qwen2'"):
        read_tokenizer(qwen)
    bos = _write(tmp_path / "c.gguf", tokenizer_model="gpt2", tokenizer_pre="smollm", add_bos_token=True)
    with pytest.raises(ValueError, match="before every text"):
        read_tokenizer(bos)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a gguf file at all, but long enough to read"])
def test_garbage_is_one_clear_error(tmp_path, content):
    file = tmp_path / "garbage.gguf"
    file.write_bytes(content)
    with pytest.raises(RunFailedError, match=r"cannot convert garbage\.gguf"):
        convert_gguf(file, tmp_path)
