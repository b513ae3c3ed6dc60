"""Storage of the two tiers: sizes in real bytes, growth, and what is written where."""

import gc

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import is_fake

from dtk.models import TinyShape, tiny_model
from dtk.scout import ScoutConfig, attach
from dtk.scout.host import HostWorker
from dtk.scout.layer import OffloadedLayer
from dtk.scout.layout import BatchLayout
from dtk.scout.policies import RecallTimer
from dtk.scout.stats import LayerStats
from dtk.scout.tiers import DeviceTier, HostTier

SHAPE = (2, 4, 3)


def storage_bytes() -> int:
    """Bytes of all tensor storages alive in this process, each counted once."""
    gc.collect()
    # Not isinstance: it reads `__class__`, which some of the objects found here answer with a warning.
    # Fake tensors, which the tests of torch's operators leave behind, hold nothing.
    found = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor) and not is_fake(x)]
    # Other tests may have left sparse and nested tensors behind, which have no storage to count.
    dense = [x for x in found if x.layout is torch.strided and not x.is_nested]
    return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in dense}.values())


def test_device_tier_never_exceeds_budget_and_tail_blocks_in_real_allocations() -> None:
    """Counts every tensor alive, so K/V kept by mistake anywhere would show."""
    shape = TinyShape(num_layers=4, num_kv_heads=2, head_dim=16)
    model = tiny_model("llama", shape=shape)
    config = ScoutConfig(budget_tokens=32, block_size=8, dense_layers=1, track_query_cosine=False)
    bytes_per_token_layer = 2 * 2 * 16 * 4
    limit = 3 * (32 + 8) * bytes_per_token_layer
    prompt, steps = 200, 40
    with torch.no_grad(), attach(model, config) as session:
        cache = session.new_cache(steps)
        ids = torch.arange(prompt)[None] % 256
        before = storage_bytes()
        model(ids, cache=cache, logits_to_keep=1)
        for step in range(steps):
            assert cache.device_kv_bytes <= limit
            if step % 13 == 0:
                kept = storage_bytes() - before
                others = cache.host_kv_bytes + cache.dense_kv_bytes + cache.digest_bytes
                # Block maps, lengths, statistics: some dozen bytes a block and step, far below a layer's K/V.
                assert kept - others <= limit + 3 * (600 + 100 * step)
            model(torch.tensor([[step]]), cache=cache)
        dense_layer = (prompt + steps) * bytes_per_token_layer
        assert cache.dense_kv_bytes == dense_layer
        assert 3 * dense_layer > 5 * cache.device_kv_bytes


def test_memory_of_two_caches_counts_once_each_and_is_freed() -> None:
    model = tiny_model("llama", shape=TinyShape(num_layers=4))
    config = ScoutConfig(budget_tokens=32, block_size=8, dense_layers=1)
    with torch.no_grad(), attach(model, config) as session:
        before = storage_bytes()
        caches = [session.new_cache() for _ in range(2)]
        for cache in caches:
            model(torch.arange(100)[None], cache=cache, logits_to_keep=1)
        assert caches[0].host_kv_bytes == caches[1].host_kv_bytes > 0
        assert storage_bytes() - before >= 2 * caches[0].host_kv_bytes
        del caches, cache
        assert storage_bytes() - before < 20_000


def test_host_tier_grows_and_keeps_its_blocks() -> None:
    tier = HostTier(2, 3, SHAPE, torch.float32)
    blocks = torch.arange(5.0)[:, None, None, None].expand(5, *SHAPE)
    rows, ids = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 2])
    tier.write(rows, ids, blocks, -blocks)
    tier.reserve(11)
    assert tier.capacity >= 11
    assert [float(tier.row(0, 3)[0][i].mean()) for i in range(3)] == [0, 1, 2]
    assert [float(tier.row(1, 3)[1][i].mean()) for i in (0, 2)] == [-3, -4]


def test_host_tier_stays_on_the_host_whatever_the_default_device() -> None:
    with torch.device("meta"):
        tier = HostTier(1, 2, SHAPE, torch.float32)
    assert tier.keys.device.type == tier.values.device.type == "cpu"


def test_decode_with_another_default_device() -> None:
    model = tiny_model("llama", shape=TinyShape(num_layers=4))
    config = ScoutConfig(budget_tokens=32, block_size=8, dense_layers=1)
    ids, query, new = torch.arange(100)[None], torch.ones(1, 4, 16), torch.ones(1, 2, 16)
    with torch.no_grad(), attach(model, config) as session:
        logits = []
        for device in ("cpu", "meta"):
            cache = session.new_cache()
            model(ids, cache=cache)
            layer = cache.offloaded[2].offloaded
            with torch.device(device):
                layer.predict(query)
                logits.append(layer.attend(query, new, new))
        assert torch.equal(*logits)


def test_statistics_stay_small() -> None:
    """20 bytes a step, though the rows are kept in a tensor that doubles."""
    stats = LayerStats()
    one = torch.tensor(1.0)
    for _ in range(1000):
        stats.record(
            host_tokens=one, attended_tokens=one, churn=None, query_cosine=one / 2, recalled_blocks=None
        )
    assert stats._rows.nbytes <= 2 * 1000 * 20 + 1280
    assert stats.host_tokens.tolist() == [1.0] * 1000
    assert stats.query_cosine.tolist() == [0.5] * 1000
    assert stats.churn.isnan().all()
    assert not stats.recalled_blocks.any()


def test_added_slots_are_empty_and_the_old_ones_unchanged() -> None:
    tier = DeviceTier(2, 3, SHAPE, torch.float32, torch.device("cpu"))
    tier.reserve(8)
    for row in range(2):
        keys = torch.full((2, *SHAPE), row + 1.0)
        tier.place(row, torch.tensor([4, 6]), keys, keys)
        tier.set_tail(row, torch.full((2, 1, 3), 9.0), torch.full((2, 1, 3), 9.0))
    tier.add_slots(2)
    assert tier.block_of_slot.tolist() == [[4, 6, -1, -1, -1]] * 2
    assert tier.lengths.tolist() == [[4, 4, 1, 0, 0]] * 2
    assert [float(k.mean()) for k in tier.keys.unflatten(0, (2, 5))[:, 0]] == [1, 2]
    assert tier.tail(1, 1)[0].tolist() == [[[9.0] * 3]] * 2


@given(
    tokens=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    block_size=st.integers(1, 6),
    steps=st.integers(0, 14),
    per_head=st.booleans(),
)
def test_dense_kv_gives_back_every_token(
    tokens: list[int], block_size: int, steps: int, per_head: bool
) -> None:
    generator = torch.Generator().manual_seed(1)
    batch, padded = len(tokens), max(tokens)
    keys, values = (torch.randn(batch, 2, padded + steps, 5, generator=generator) for _ in range(2))
    for row, count in enumerate(tokens):
        keys[row, :, : padded - count] = values[row, :, : padded - count] = 0
    config = ScoutConfig(budget_tokens=2 * block_size, block_size=block_size, recall_interval=2)
    with HostWorker(1) as host:
        layer = OffloadedLayer(config, host, 1.0, RecallTimer(2))
        layout = BatchLayout([padded - n for n in tokens], list(tokens), 2 if per_head else 1)
        layer.prefill(keys[:, :, :padded], values[:, :, :padded], torch.randn(batch, 4, 5), layout)
        for step in range(padded, padded + steps):
            query = torch.randn(batch, 4, 5, generator=generator)
            layer.attend(query, keys[:, :, step], values[:, :, step])
        held = layer.dense_kv()
        assert torch.equal(held[0], keys)
        assert torch.equal(held[1], values)
        order = torch.tensor([batch - 1, 0, 0])
        layer.select_sequences(order)
        assert torch.equal(layer.dense_kv()[0], keys[order])


def test_selected_sequences_decode_like_their_own_batch() -> None:
    """Digests, block maps and a recall under way must follow the sequences, not only their K/V."""
    generator = torch.Generator().manual_seed(5)
    keys, values = (torch.randn(3, 2, 60, 8, generator=generator) for _ in range(2))
    steps = [torch.randn(3, 8, 8, generator=generator) for _ in range(14)]
    order = torch.tensor([2, 0, 2])
    config = ScoutConfig(budget_tokens=16, block_size=4, recall_interval=2)

    def decode(layer: OffloadedLayer, part: list[torch.Tensor], rows: torch.Tensor) -> list[torch.Tensor]:
        outputs = []
        for step in part:
            query, key, value = step[rows, :4], step[rows, 4:6], step[rows, 6:8]
            layer.predict(query.flip(-1))
            outputs.append(layer.attend(query, key, value))
        return outputs

    with HostWorker(1) as host:

        def fresh(rows: torch.Tensor) -> OffloadedLayer:
            layer = OffloadedLayer(config, host, 0.4, RecallTimer(2))
            layout = BatchLayout([0] * len(rows), [60] * len(rows))
            layer.prefill(keys[rows], values[rows], steps[0][rows, :4], layout)
            return layer

        moved, own = fresh(torch.arange(3)), fresh(order)
        decode(moved, steps[:6], torch.arange(3))
        decode(own, steps[:6], order)
        assert moved._recall is not None
        moved.select_sequences(order)
        for one, other in zip(decode(moved, steps[6:], order), decode(own, steps[6:], order), strict=True):
            torch.testing.assert_close(one, other)
        assert float(own.stats.host_tokens.sum()) > 0


def test_room_for_the_new_tokens_is_made_at_once() -> None:
    model = tiny_model("llama", shape=TinyShape(num_layers=4))
    config = ScoutConfig(budget_tokens=32, block_size=8, dense_layers=1)
    with torch.no_grad(), attach(model, config) as session:
        cache = session.new_cache(40)
        model(torch.arange(100)[None], cache=cache)
        before = cache.host_kv_bytes
        for _ in range(40):
            model(torch.tensor([[3]]), cache=cache)
        assert cache.host_kv_bytes == before == 3 * 2 * (100 // 8 + 5) * 2 * 8 * 16 * 4
