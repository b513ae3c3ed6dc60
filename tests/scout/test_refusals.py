"""What an attachment and its cache refuse: each in one clear line, and with nothing changed."""

import pytest
import torch

from dtk.errors import InputError
from dtk.models import tiny_model
from dtk.scout import ScoutConfig, attach
from tests.scout.test_transformers import SHAPE, SPARSE, left_padded


def test_foreign_attention_function_on_the_model() -> None:
    model = tiny_model("llama", shape=SHAPE)
    with attach(model, SPARSE) as session:
        cache = session.new_cache()
        model.set_attn_implementation("eager")
        refused = pytest.raises(InputError, match=r"attn_implementation: .*'eager'")
        with torch.no_grad(), refused:
            model(left_padded([20])["input_ids"], cache=cache)


def test_cache_used_after_detaching() -> None:
    model = tiny_model("llama", shape=SHAPE)
    with attach(model, SPARSE) as session:
        cache = session.new_cache()
    with pytest.raises(InputError, match="'sdpa'"):
        model(left_padded([20])["input_ids"], cache=cache)


def test_cache_of_another_model() -> None:
    model, other = (tiny_model("llama", seed=seed, shape=SHAPE) for seed in (0, 1))
    with attach(model, SPARSE) as session, attach(other, SPARSE):
        foreign = session.new_cache()
        with pytest.raises(InputError, match="another model"):
            other(left_padded([20])["input_ids"], cache=foreign)


def test_attention_function_that_cannot_be_replaced() -> None:
    model = tiny_model("llama", shape=SHAPE, attention="flex_attention")
    with pytest.raises(InputError, match="flex_attention"), attach(model, SPARSE):
        pass


def test_attaching_twice() -> None:
    model = tiny_model("llama", shape=SHAPE)
    with attach(model, SPARSE), pytest.raises(InputError, match="already"), attach(model, SPARSE):
        pass


def test_unsupported_model_type() -> None:
    import transformers

    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=16)
    model = transformers.GPT2LMHeadModel(config)
    with pytest.raises(InputError, match="gpt2"), attach(model, SPARSE):
        pass


def test_no_layer_left_to_offload() -> None:
    model = tiny_model("llama", shape=SHAPE)
    with pytest.raises(InputError, match="dense_layers"), attach(model, ScoutConfig(dense_layers=5)):
        pass


def test_wrong_number_of_recall_intervals() -> None:
    model = tiny_model("llama", shape=SHAPE)
    config = ScoutConfig(dense_layers=1, recall_interval=(1, 2, 3))
    with pytest.raises(InputError, match="4 offloaded layers"), attach(model, config):
        pass


@pytest.mark.parametrize("mask", [[1, 1, 1, 0], [1, 0, 1, 1]])
def test_padding_that_is_not_on_the_left(mask: list[int]) -> None:
    model = tiny_model("llama", shape=SHAPE)
    refused = pytest.raises(InputError, match="padded on the left")
    with torch.no_grad(), attach(model, SPARSE) as session, refused:
        model(
            input_ids=torch.full((2, 4), 7),
            attention_mask=torch.tensor([[1, 1, 1, 1], mask]),
            cache=session.new_cache(),
        )


def test_decode_mask_that_does_not_match_the_cache() -> None:
    model = tiny_model("llama", shape=SHAPE)
    inputs = left_padded([20, 5])
    with torch.no_grad(), attach(model, SPARSE) as session:
        cache = session.new_cache()
        model(**inputs, cache=cache)
        with pytest.raises(InputError, match="does not match the cache"):
            model(input_ids=torch.tensor([[1], [2]]), cache=cache)


def test_gradients_through_the_cache() -> None:
    model = tiny_model("llama", shape=SHAPE)
    with attach(model, SPARSE) as session, pytest.raises(InputError, match="no_grad"):
        model(left_padded([20])["input_ids"], cache=session.new_cache())


def test_crop_and_reset_before_any_layer_has_changed() -> None:
    model = tiny_model("llama", shape=SHAPE)
    with torch.no_grad(), attach(model, SPARSE) as session:
        cache = session.new_cache()
        model(left_padded([20])["input_ids"], cache=cache)
        assert not cache.is_croppable
        with pytest.raises(InputError, match="crop"):
            cache.crop(-1)
        with pytest.raises(InputError, match="reset"):
            cache.reset()
        assert {layer.get_seq_length() for layer in cache.layers} == {20}
        model(torch.tensor([[7]]), cache=cache)


@pytest.mark.parametrize("broken_layer", range(5))
def test_cache_of_a_forward_pass_that_broke_off(broken_layer: int) -> None:
    model = tiny_model("llama", shape=SHAPE)
    with torch.no_grad(), attach(model, SPARSE) as session:
        cache = session.new_cache()
        model(left_padded([90])["input_ids"], cache=cache)
        mlp = model.model.layers[broken_layer].mlp
        handle = mlp.register_forward_pre_hook(lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            model(torch.tensor([[7]]), cache=cache)
        handle.remove()
        if broken_layer < 4:  # behind the last attention nothing is missing
            with pytest.raises(InputError, match="did not end"):
                model(torch.tensor([[7]]), cache=cache)
        else:
            model(torch.tensor([[7]]), cache=cache)


def test_arguments_of_the_wrong_kind() -> None:
    model = tiny_model("llama", shape=SHAPE)
    for config in ({}, "sparse", 3):
        with pytest.raises(InputError, match="must be a ScoutConfig"), attach(model, config):  # type: ignore[arg-type]
            pass
    for threads in (0, -1, 2.5, "2", None, 10**9):
        refused = pytest.raises(InputError, match="host_threads: must be a whole number")
        with refused, attach(model, SPARSE, host_threads=threads):  # type: ignore[arg-type]
            pass
    for tokens in (-5, 10**18):
        with (
            attach(model, SPARSE) as session,
            pytest.raises(InputError, match="max_new_tokens: must be from"),
        ):
            session.new_cache(tokens)


def test_weights_of_another_type() -> None:
    model = tiny_model("llama", shape=SHAPE).double()
    with pytest.raises(InputError, match="float64"), attach(model, SPARSE):
        pass


def test_failed_attachment_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", shape=SHAPE)

    def fail(name: str) -> None:
        if name == "dtk_scout":
            raise ZeroDivisionError

    monkeypatch.setattr(model, "set_attn_implementation", fail)
    with pytest.raises(ZeroDivisionError), attach(model, SPARSE):
        pass
    assert not any(layer._forward_pre_hooks for layer in model.model.layers)
    assert not any(hasattr(layer.self_attn, "_dtk_scout_session") for layer in model.model.layers)
