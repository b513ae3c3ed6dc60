"""The host's share runs beside the device's work, and nothing reads what is still being written."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from dtk.scout.config import ScoutConfig
from dtk.scout.host import HostPartial, HostWorker
from dtk.scout.layer import OffloadedLayer
from dtk.scout.layout import BatchLayout
from dtk.scout.policies import RecallTimer

CONFIG = ScoutConfig(budget_tokens=16, block_size=4, recall_interval=1)


class HeldJob:
    """A job that does not start before it is released, and then runs on whoever waits for it."""

    def __init__(self, run: object, gate: threading.Event) -> None:
        self._run = run
        self._gate = gate
        self.waited = False

    def done(self) -> bool:
        return self._gate.is_set()

    def wait(self) -> object:
        assert self._gate.wait(10)
        self.waited = True
        return self._run()  # type: ignore[operator]


class HeldHost(HostWorker):
    """A host worker whose jobs all wait for a gate."""

    def __init__(self) -> None:
        super().__init__(1)
        self.gate = threading.Event()
        self.jobs: list[HeldJob] = []
        self.recalls: list[HeldJob] = []

    def submit(self, partial: HostPartial) -> HeldJob:  # type: ignore[override]
        job = HeldJob(lambda: HostWorker.submit(self, partial).wait(), self.gate)
        self.jobs.append(job)
        return job

    def recall(self, *arguments: object) -> HeldJob:  # type: ignore[override]
        job = HeldJob(lambda: HostWorker.recall(self, *arguments).wait(), self.gate)  # type: ignore[arg-type]
        self.recalls.append(job)
        return job


def filled(host: HostWorker, tokens: int = 61) -> OffloadedLayer:
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(1, 2, tokens, 8, generator=generator) for _ in range(2))
    layer = OffloadedLayer(CONFIG, host, 0.4, RecallTimer(CONFIG.recall_interval))  # type: ignore[arg-type]
    layer.prefill(keys, values, torch.randn(1, 4, 8, generator=generator), BatchLayout([0], [tokens]))
    return layer


@pytest.fixture(autouse=True)
def _same_queries_in_every_run() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


@pytest.fixture
def held() -> Iterator[HeldHost]:
    with HeldHost() as host:
        yield host
        host.gate.set()


def test_predict_returns_before_the_host_share_has_run(held: HeldHost) -> None:
    layer = filled(held)
    layer.predict(torch.randn(1, 4, 8))
    assert len(held.jobs) == 1
    assert not held.jobs[0].waited


def test_attend_waits_for_a_late_host_share_and_counts_it(held: HeldHost) -> None:
    layer = filled(held)
    layer.predict(torch.randn(1, 4, 8))
    threading.Timer(0.2, held.gate.set).start()
    began = time.perf_counter()
    layer.attend(torch.randn(1, 4, 8), torch.randn(1, 2, 8), torch.randn(1, 2, 8))
    assert time.perf_counter() - began > 0.15
    assert held.jobs[0].waited
    assert layer.stats.late_host_jobs == 1
    assert layer.stats.host_wait_s > 0.1


def test_a_host_share_that_is_done_in_time_is_not_late() -> None:
    with HostWorker(1) as host:
        layer = filled(host)
        layer.predict(torch.randn(1, 4, 8))
        assert layer._selection is not None
        assert layer._selection.job is not None
        layer._selection.job.wait()
        layer.attend(torch.randn(1, 4, 8), torch.randn(1, 2, 8), torch.randn(1, 2, 8))
    assert layer.stats.late_host_jobs == 0


def test_the_real_host_worker_does_not_wait_when_a_share_is_submitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job cannot start before `predict` has returned, so a submission that waited would time out."""
    with HostWorker(1) as host:
        layer, gate, submit = filled(host), threading.Event(), host._workers.submit_sparse_decode_attention

        class Gated:
            submit_copy_blocks = host._workers.submit_copy_blocks

            def submit_sparse_decode_attention(self, *arguments: object) -> HeldJob:
                return HeldJob(lambda: submit(*arguments).wait(), gate)  # type: ignore[arg-type]

        monkeypatch.setattr(host, "_workers", Gated())
        layer.predict(torch.randn(1, 4, 8))
        gate.set()
        layer.attend(torch.randn(1, 4, 8), torch.randn(1, 2, 8), torch.randn(1, 2, 8))
        assert layer.stats.host_wait_s > 0
        monkeypatch.undo()


def test_residency_is_published_only_when_the_recall_is_done(held: HeldHost) -> None:
    layer = filled(held)
    held.gate.set()
    query = torch.randn(1, 4, 8)
    layer.predict(-query)
    held.gate.clear()
    held.jobs[-1].wait = HostWorker.submit(held, layer._selection.partial).wait  # type: ignore[union-attr,method-assign,arg-type]
    layer.attend(query, torch.randn(1, 2, 8), torch.randn(1, 2, 8))
    assert held.recalls
    recalled = layer._recall
    assert recalled is not None
    tier = layer.device_tier
    assert (tier.lengths[recalled.rows, recalled.slots] == 0).all()
    assert (tier.slot_of_block[recalled.rows, recalled.blocks] == -1).all()
    threading.Timer(0.2, held.gate.set).start()
    layer.predict(query)
    assert held.recalls[0].waited
    assert (tier.lengths[recalled.rows, recalled.slots] == CONFIG.block_size).all()
    source = layer.host_tier.keys[recalled.blocks]
    assert torch.equal(tier.keys[recalled.slots], source)


def test_a_second_prediction_before_the_first_was_used_is_refused(held: HeldHost) -> None:
    layer = filled(held)
    layer.predict(torch.randn(1, 4, 8))
    with pytest.raises(RuntimeError, match="never collected"):
        layer.predict(torch.randn(1, 4, 8))


def test_blocks_that_were_never_written_are_never_read() -> None:
    """NaN in all of host memory that no block was written to, and in every empty slot, must not leak."""
    with HostWorker(1) as host:
        layer = filled(host, tokens=9)
        layer.host_tier.keys[2:] = torch.nan
        layer.host_tier.values[2:] = torch.nan
        empty = (layer.device_tier.lengths[0] == 0).nonzero()[:, 0]
        layer.device_tier.keys[empty] = torch.nan
        layer.device_tier.values[empty] = torch.nan
        for _ in range(40):
            query = torch.randn(1, 4, 8)
            layer.predict(query)
            assert layer.attend(query, torch.randn(1, 2, 8), torch.randn(1, 2, 8)).isfinite().all()
        assert float(layer.stats.host_tokens.sum()) > 0


def test_recalls_do_not_change_what_the_host_holds() -> None:
    with HostWorker(1) as host:
        layer = filled(host)
        before = layer.host_tier.keys[:15].clone(), layer.host_tier.values[:15].clone()
        for _ in range(20):
            query = torch.randn(1, 4, 8)
            layer.predict(query)
            layer.attend(query, torch.randn(1, 2, 8), torch.randn(1, 2, 8))
        assert float(layer.stats.recalled_blocks.sum()) > 0
        after = layer.host_tier.keys[:15], layer.host_tier.values[:15]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_recall_at_every_step_makes_the_host_share_the_churn() -> None:
    """Interval 1 updates the residents each step, so what is missing next is what is newly selected."""
    with HostWorker(1) as host:
        layer = filled(host, tokens=64)
        for _ in range(3):  # stays within one tail block: closing a block would change the residents as well
            query = torch.randn(1, 4, 8)
            layer.predict(query)
            layer.attend(query, torch.randn(1, 2, 8), torch.randn(1, 2, 8))
        missing = layer.stats.host_tokens / CONFIG.budget_tokens
        assert torch.equal(missing[1:], layer.stats.churn[1:])
        assert layer.stats.churn[0].isnan()
