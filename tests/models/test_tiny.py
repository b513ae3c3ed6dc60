import pytest
import torch

from dtk.errors import InputError
from dtk.models import TinyShape, byte_tokenizer, load, tiny_model
from dtk.models.registry import registry

ARCHITECTURES = ["llama", "mistral", "qwen2", "qwen3"]
PROMPT = torch.tensor([[72, 101, 108, 108, 111, 44, 32, 119]])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_seed_alone_fixes_the_weights(architecture):
    torch.manual_seed(1)
    first = tiny_model(architecture, seed=7)
    state = torch.random.get_rng_state()
    torch.manual_seed(2)
    second, other = tiny_model(architecture, seed=7), tiny_model(architecture, seed=8)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
        assert not torch.equal(tensor, other.state_dict()[name]), name
    torch.manual_seed(1)
    assert torch.equal(state, torch.random.get_rng_state()), "the global random state moved"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_parameter_matters(architecture):
    model = tiny_model(architecture)
    with torch.inference_mode():
        before = model(PROMPT).logits
        for name, parameter in model.named_parameters():
            kept = parameter.clone()
            parameter.mul_(1.5).add_(0.05)
            # A bias on keys shifts all scores of a query alike when RoPE is weak, so the bar is low.
            assert (model(PROMPT).logits - before).abs().max() > 1e-4, name
            parameter.copy_(kept)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_attention_is_not_flat(architecture):
    model = tiny_model(architecture, attention="eager")
    with torch.inference_mode():
        attentions = model(PROMPT, output_attentions=True).attentions
    last_row = torch.stack([layer[0, :, -1] for layer in attentions])
    assert last_row.max(-1).values.mean() > 2 / PROMPT.shape[1]


def test_shape_reaches_the_model():
    shape = TinyShape(num_layers=3, num_heads=6, num_kv_heads=1, head_dim=20, vocab_size=97, hidden_size=48)
    model = tiny_model("qwen3", shape=shape)
    attention = model.model.layers[2].self_attn
    assert attention.q_proj.weight.shape == (120, 48)
    assert attention.k_proj.weight.shape == (20, 48)
    assert model(torch.tensor([[96, 0]])).logits.shape == (1, 2, 97)


def test_unknown_architecture_is_named():
    with pytest.raises(InputError, match=r"gpt9.*llama, mistral, qwen2, qwen3"):
        tiny_model("gpt9")


@pytest.mark.parametrize(
    "text", ["", "a", "Grüße, 你好 🙂\n\tx  1", "\x00\x7f\r\n", "<bos> is not special here?"]
)
def test_byte_tokenizer_is_utf8(text):
    tokenizer = byte_tokenizer()
    ids = tokenizer(text.replace("<bos>", "bos"))["input_ids"]
    assert ids == list(text.replace("<bos>", "bos").encode())
    assert tokenizer.decode(ids) == text.replace("<bos>", "bos")


def test_byte_tokenizer_special_tokens():
    tokenizer = byte_tokenizer()
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (256, 257, 257)
    assert tokenizer.decode([72, 257], skip_special_tokens=True) == "H"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_registry_name_loads_the_same_model(architecture, cache_folder):
    loaded = load(f"tiny-{architecture}")
    assert loaded.source.is_relative_to(cache_folder)
    assert loaded.context_length == 4096
    assert loaded.tokenizer("Hi")["input_ids"] == [72, 105]
    with torch.inference_mode():
        assert torch.equal(loaded.model(PROMPT).logits, tiny_model(architecture)(PROMPT).logits)
    entry = registry()[f"tiny-{architecture}"]
    assert sum(parameter.numel() for parameter in loaded.model.parameters()) == entry.parameters
