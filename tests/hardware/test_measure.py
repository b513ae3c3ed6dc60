"""This machine's own figures: how rates become limits, and that the probes do what they say."""

import pytest
import torch

from dtk.hardware import measure
from dtk.hardware.measure import Probe
from dtk_kernels.workers import Workers


def test_the_faster_probe_is_the_limit() -> None:
    probes = [Probe("a", 100.0, lambda: None), Probe("b", 60.0, lambda: None)]
    limit = measure.limit_of(probes, {"a": 4.0, "b": 2.0})
    assert (limit.per_s, limit.probe, limit.by_probe) == (30.0, "b", {"a": 25.0, "b": 30.0})
    assert limit.basis == "measured"


def test_the_buffer_is_well_beyond_the_caches() -> None:
    assert measure.last_level_cache_bytes() >= 2**15
    assert measure.read_buffer_bytes() >= 4 * measure.last_level_cache_bytes()
    assert measure.read_buffer_bytes() % 4096 == 0


def test_a_machine_that_does_not_tell_its_caches_has_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_CACHES", measure.Path("/nowhere"))
    assert measure.last_level_cache_bytes() == 32 * 2**20


@pytest.mark.native
def test_probes_do_the_work_that_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_MATRIX_SIZE", 48)
    monkeypatch.setattr(measure, "_MULTIPLY_ADDS", 10**6)
    buffer = torch.ones(4096)
    with Workers(2) as workers:
        native_read, torch_sum = measure.read_probes(workers, buffer)
        assert (native_read.quantity, torch_sum.quantity) == (4096 * 4, 4096 * 4)
        assert (native_read.run(), float(torch_sum.run())) == (4096.0, 4096.0)  # type: ignore[arg-type]
        native, product = measure.multiply_add_probes(workers)
        assert native.run() == native.quantity == pytest.approx(2 * 10**6, rel=0.1)
        assert product.quantity == 48**3
        assert torch.equal(product.run(), torch.full((48, 48), 48.0))  # type: ignore[arg-type]


@pytest.mark.native
def test_evicting_reads_the_end_of_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(measure.limits, "read", lambda _, part: read.append(part.data_ptr()))
    monkeypatch.setattr(measure, "_USUAL_CACHE_BYTES", 4096)
    monkeypatch.setattr(measure, "last_level_cache_bytes", lambda: 4096)
    buffer = torch.ones(8192)
    with Workers(1) as workers:
        measure.evict_caches(workers, buffer)
    assert read == [buffer.data_ptr() + 8192 * 4 - 2 * 4096]
