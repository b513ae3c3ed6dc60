"""ScoutAttention on unmodified Hugging Face models: equal to stock SDPA where it must be, else loud."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from dtk.models import TinyShape, tiny_model
from dtk.scout import ScoutConfig, attach
from dtk.scout.transformers_cache import OffloadedCacheLayer, ScoutCache

ARCHITECTURES = ["llama", "qwen2", "qwen3", "mistral"]
SHAPE = TinyShape(num_layers=5, num_heads=6, num_kv_heads=2, hidden_size=96, head_dim=16)
NEW_TOKENS = 24
DENSE = ScoutConfig(budget_tokens=512, block_size=8, dense_layers=1)
SPARSE = ScoutConfig(budget_tokens=32, block_size=8, dense_layers=1, recall_interval=3)


def left_padded(lengths: list[int], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    widest = max(lengths)
    ids = torch.randint(0, 256, (len(lengths), widest), generator=generator)
    mask = torch.arange(widest) >= widest - torch.tensor(lengths)[:, None]
    return {"input_ids": ids.masked_fill(~mask, 257), "attention_mask": mask.long()}


def run(
    model: Any, inputs: dict[str, Tensor], cache: ScoutCache | None = None, tokens: int = NEW_TOKENS
) -> Any:
    return model.generate(
        **inputs,
        cache=cache,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )


def largest_difference(one: Any, other: Any) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one.logits, other.logits, strict=True))


def host_share(layer: OffloadedCacheLayer) -> bool:
    """Whether the host attended to anything in this layer."""
    return bool((layer.offloaded.stats.host_tokens > 0).any())


@pytest.mark.parametrize("selection", ["layer", "kv_head"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_budget_above_the_context_equals_stock_sdpa(architecture: str, selection: str) -> None:
    model = tiny_model(architecture, seed=3, shape=SHAPE)
    inputs = left_padded([61, 8, 1, 40])
    stock = run(model, inputs)
    config = DENSE.model_copy(update={"selection": selection})
    with attach(model, config) as session:
        cache = session.new_cache()
        scout = run(model, inputs, cache)
    assert torch.equal(scout.sequences, stock.sequences)
    assert largest_difference(scout, stock) < 1e-4
    assert not any(host_share(layer) for layer in cache.offloaded.values())


@pytest.mark.parametrize("config", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_row_of_a_padded_batch_equals_its_solo_run(architecture: str, config: ScoutConfig) -> None:
    model = tiny_model(architecture, seed=5, shape=SHAPE)
    lengths = [90, 33, 3]
    inputs = left_padded(lengths, seed=1)
    with attach(model, config) as session:
        cache = session.new_cache()
        batch = run(model, inputs, cache)
        for row, length in enumerate(lengths):
            solo = run(
                model, {"input_ids": inputs["input_ids"][row : row + 1, -length:]}, session.new_cache()
            )
            assert torch.equal(solo.sequences[0, length:], batch.sequences[row, -NEW_TOKENS:])
            logits = torch.stack([step[row] for step in batch.logits])
            torch.testing.assert_close(
                logits, torch.stack([step[0] for step in solo.logits]), rtol=1e-3, atol=1e-4
            )
    assert all(host_share(layer) for layer in cache.offloaded.values()) == (config is SPARSE)


def test_oracle_query_and_selected_scope_do_not_depend_on_residency(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real query and only selected residents attended, this is Quest, whatever is resident."""
    model = tiny_model("llama", seed=7, shape=SHAPE)
    inputs = left_padded([90])
    logits = []
    for interval in (1, 5, None):
        config = SPARSE.model_copy(update={"device_scope": "selected", "recall_interval": interval})
        # Without a prediction, every layer selects and starts its host share with its real query.
        monkeypatch.setattr("dtk.scout.layer.OffloadedLayer.predict", lambda self, query: None)
        with attach(model, config) as session:
            cache = session.new_cache()
            logits.append(torch.stack(run(model, inputs, cache).logits))
        assert all(host_share(layer) for layer in cache.offloaded.values())
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits[0], logits[2], rtol=1e-4, atol=1e-4)


def test_predicted_query_is_the_real_one_where_layers_do_nothing() -> None:
    """A layer whose output projections are zero passes its input on, so the prediction must be exact."""
    for architecture in ARCHITECTURES:
        model = tiny_model(architecture, seed=9, shape=SHAPE)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.data.zero_()
            layer.mlp.down_proj.weight.data.zero_()
        with attach(model, SPARSE) as session:
            cache = session.new_cache()
            run(model, left_padded([90, 70]), cache, tokens=4)
        cosines = torch.stack([layer.offloaded.stats.query_cosine for layer in cache.offloaded.values()])
        assert cosines.shape == (4, 3)
        assert float(cosines.min()) > 1 - 1e-5


@pytest.mark.parametrize("norm", ["target", "source"])
def test_cosine_is_the_one_of_a_query_made_by_hand(norm: str) -> None:
    model = tiny_model("qwen3", seed=11, shape=SHAPE)
    ids = left_padded([90])["input_ids"]
    inputs: list[Tensor] = []
    queries: list[Tensor] = []
    target = model.model.layers[1]
    with torch.no_grad(), attach(model, SPARSE.model_copy(update={"predict_norm": norm})) as session:
        cache = session.new_cache()
        model(ids, cache=cache)
        handles = [
            model.model.layers[0].register_forward_pre_hook(lambda _, args: inputs.append(args[0])),
            target.self_attn.q_norm.register_forward_hook(lambda *call: queries.append(call[2])),
        ]
        model(torch.tensor([[65]]), cache=cache)
        for handle in handles:
            handle.remove()
        normed = (target if norm == "target" else model.model.layers[0]).input_layernorm(inputs[0])
        by_hand = target.self_attn.q_norm(target.self_attn.q_proj(normed).unflatten(-1, (6, 16)))
    # RoPE turns both alike, so this is the cosine before it; the hook saw the prediction, then the real one.
    expected = torch.nn.functional.cosine_similarity(by_hand, queries[-1], dim=-1).mean()
    torch.testing.assert_close(cache.offloaded[1].offloaded.stats.query_cosine[0], expected)


def test_recall_interval_of_each_layer_is_obeyed_and_staggered() -> None:
    model = tiny_model("llama", seed=12, shape=SHAPE)
    config = SPARSE.model_copy(update={"recall_interval": (2, 3, 4, 5)})
    with attach(model, config) as session:
        cache = session.new_cache()
        run(model, left_padded([120]), cache)
    for position, interval in enumerate((2, 3, 4, 5)):
        recalled = cache.offloaded[1 + position].offloaded.stats.recalled_blocks
        steps = [step for step, blocks in enumerate(recalled.tolist(), start=1) if blocks]
        phase = position % interval
        assert steps
        assert all((step + phase) % interval == 0 for step in steps)


@pytest.mark.parametrize("config", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_several_tokens_behind_a_prompt_attend_densely(config: ScoutConfig) -> None:
    model = tiny_model("qwen3", seed=13, shape=SHAPE)
    inputs = left_padded([70, 31])
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    with torch.no_grad():
        stock = model(input_ids=ids, attention_mask=mask).logits[:, -4:]
        with attach(model, config) as session:
            cache = session.new_cache()
            model(input_ids=ids[:, :40], attention_mask=mask[:, :40], cache=cache, use_cache=True)
            model(input_ids=ids[:, 40:-4], attention_mask=mask[:, :-4], cache=cache, use_cache=True)
            chunked = model(input_ids=ids[:, -4:], attention_mask=mask, cache=cache, use_cache=True).logits
    torch.testing.assert_close(chunked, stock, rtol=1e-3, atol=1e-4)


def test_decoding_goes_on_after_a_second_turn() -> None:
    model = tiny_model("llama", seed=15, shape=SHAPE)
    first, second = left_padded([50], seed=2)["input_ids"], left_padded([9], seed=3)["input_ids"]
    with attach(model, DENSE) as session:
        cache = session.new_cache()
        turn = run(model, {"input_ids": first}, cache, tokens=5).sequences
        both = torch.cat([turn, second], dim=1)
        scout = run(model, {"input_ids": both, "attention_mask": torch.ones_like(both)}, cache)
    stock = run(model, {"input_ids": both})
    assert torch.equal(scout.sequences, stock.sequences)
    assert largest_difference(scout, stock) < 1e-4


def test_beam_search_equals_stock() -> None:
    model = tiny_model("llama", seed=17, shape=SHAPE)
    inputs = left_padded([60, 20])
    arguments = {"num_beams": 3, "max_new_tokens": 12, "do_sample": False}
    stock = model.generate(**inputs, **arguments)
    for selection in ("layer", "kv_head"):
        with attach(model, DENSE.model_copy(update={"selection": selection})) as session:
            scout = model.generate(**inputs, **arguments, cache=session.new_cache())
        assert torch.equal(scout, stock)


def test_other_caches_run_stock_attention_while_attached() -> None:
    from transformers import DynamicCache

    model = tiny_model("mistral", seed=19, shape=SHAPE)
    inputs = left_padded([40, 7])
    stock = run(model, inputs)
    with attach(model, SPARSE):
        for cache in (None, DynamicCache(config=model.config)):
            assert largest_difference(run(model, inputs, cache), stock) == 0


def test_detaching_leaves_the_model_as_it_was() -> None:
    model = tiny_model("llama", seed=21, shape=SHAPE)
    before = {name: len(module._forward_pre_hooks) for name, module in model.named_modules()}
    with pytest.raises(ZeroDivisionError), attach(model, SPARSE):
        model(torch.tensor([[1 // 0]]))
    assert model.config._attn_implementation == "sdpa"
    assert {name: len(module._forward_pre_hooks) for name, module in model.named_modules()} == before
    assert not any(hasattr(layer.self_attn, "_dtk_scout_session") for layer in model.model.layers)


def test_sliding_window_layers_stay_stock_and_full_ones_are_offloaded() -> None:
    import transformers

    config = transformers.Qwen2Config(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=258,
        use_sliding_window=True,
        sliding_window=16,
        layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=257,
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    inputs = left_padded([60, 33])
    stock = run(model, inputs)
    with attach(model, DENSE.model_copy(update={"dense_layers": 0})) as session:
        assert session.offloaded_layers == [0, 2]
        scout = run(model, inputs, session.new_cache())
    assert torch.equal(scout.sequences, stock.sequences)
    assert largest_difference(scout, stock) < 1e-4
    with attach(model, SPARSE.model_copy(update={"dense_layers": 0})) as session:
        cache = session.new_cache()
        run(model, inputs, cache)
    # Layer 2 is predicted from layer 1, its predecessor in the model though that one is not offloaded; layer
    # 0 has none and selects with its real query.
    assert cache.offloaded[2].offloaded.stats.query_cosine.isfinite().all()
    assert cache.offloaded[0].offloaded.stats.query_cosine.isnan().all()
    assert host_share(cache.offloaded[0])


def test_model_without_a_head() -> None:
    model = tiny_model("llama", shape=SHAPE).model
    ids = left_padded([40])["input_ids"]
    with torch.no_grad():
        stock = model(torch.cat([ids, torch.tensor([[7]])], dim=1)).last_hidden_state[0, -1]
        with attach(model, DENSE) as session:
            cache = session.new_cache()
            model(ids, cache=cache)
            scout = model(torch.tensor([[7]]), cache=cache).last_hidden_state[0, -1]
    torch.testing.assert_close(scout, stock, rtol=1e-4, atol=1e-4)


def test_no_two_layers_share_storage() -> None:
    """Every layer bound to the same storage is a bug seen in the wild: the text stays fluent and is wrong."""
    model = tiny_model("llama", shape=SHAPE)
    with attach(model, SPARSE) as session:
        cache = session.new_cache()
        run(model, left_padded([40]), cache, tokens=2)
        pools = [x.data_ptr() for layer in cache.offloaded.values() for x in _pools(layer.offloaded)]
    assert len(set(pools)) == len(pools)


def test_ragged_batch_prefilled_in_chunks_shorter_than_its_padding() -> None:
    model = tiny_model("llama", seed=14, shape=SHAPE)
    inputs = left_padded([70, 5])
    stock = run(model, inputs)
    with attach(model, DENSE) as session:
        scout = model.generate(
            **inputs,
            cache=session.new_cache(),
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            prefill_chunk_size=32,
        )
    assert torch.equal(scout, stock.sequences)


def test_threads_may_share_a_session() -> None:
    model = tiny_model("llama", seed=16, shape=SHAPE)
    prompts = [left_padded([80 + 3 * i], seed=i) for i in range(4)]
    with attach(model, SPARSE) as session:
        alone = [run(model, prompt, session.new_cache()).sequences for prompt in prompts]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda p: run(model, p, session.new_cache()).sequences, prompts))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_a_dropped_cache_is_freed_at_once() -> None:
    """Reference counts must do: the garbage collector counts objects, not gigabytes."""
    model = tiny_model("llama", shape=SHAPE)
    with attach(model, SPARSE) as session:
        cache = session.new_cache()
        run(model, left_padded([60]), cache, tokens=3)
        held = weakref.ref(cache.offloaded[1].offloaded.host_tier)
        gc.disable()
        try:
            del cache
            assert held() is None
        finally:
            gc.enable()


def test_a_copied_cache_continues_on_its_own() -> None:
    model = tiny_model("llama", seed=18, shape=SHAPE)
    ids = left_padded([90])["input_ids"]
    with torch.no_grad(), attach(model, SPARSE) as session:
        cache = session.new_cache()
        model(ids, cache=cache)
        copied = deepcopy(cache)
        logits = []
        for one in (cache, copied):
            steps = [model(torch.tensor([[token]]), cache=one).logits for token in (3, 4, 5, 6, 7, 8)]
            logits.append(torch.cat(steps))
    assert torch.equal(*logits)
    first, second = (x.offloaded[2].offloaded.device_tier.keys for x in (cache, copied))
    assert first.data_ptr() != second.data_ptr()


def test_autocast_decodes() -> None:
    model = tiny_model("llama", seed=20, shape=SHAPE)
    ids = left_padded([50])["input_ids"]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        stock = model(torch.cat([ids, torch.tensor([[7]])], dim=1)).logits[0, -1]
        with attach(model, DENSE) as session:
            cache = session.new_cache()
            model(ids, cache=cache)
            scout = model(torch.tensor([[7]]), cache=cache).logits[0, -1]
    torch.testing.assert_close(scout, stock, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_follows_stock(dtype: torch.dtype) -> None:
    model = tiny_model("qwen2", seed=22, shape=SHAPE).to(dtype)
    ids = left_padded([50])["input_ids"]
    with torch.no_grad():
        stock = model(torch.cat([ids, torch.tensor([[7]])], dim=1)).logits[0, -1].float()
        with attach(model, DENSE) as session:
            cache = session.new_cache()
            model(ids, cache=cache)
            scout = model(torch.tensor([[7]]), cache=cache).logits[0, -1].float()
    torch.testing.assert_close(scout, stock, rtol=0.1, atol=0.1)


def _pools(layer: Any) -> list[Tensor]:
    return [layer.host_tier.keys, layer.host_tier.values, layer.device_tier.keys, layer.device_tier.values]
