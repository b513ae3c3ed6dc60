"""The table of this machine's figures: what is counted, and that the loopback carries what it should."""

import itertools
import socket

import pytest

from dtk.hardware.loopback import Loopback
from dtk.hardware.machine import measure_machine

SMALL = {"gemm_sizes": (3, 8), "buffer_bytes": 2**16, "stream_bytes": 3 * 2**20 + 5}


def test_every_figure_is_taken_in_every_round() -> None:
    figures = {one.name: one for one in measure_machine(rounds=2, **SMALL)}
    units = {"read": "bytes_per_s", "copy": "bytes_per_s", "gemm": "flop_per_s"}
    names = {"read torch_sum", "copy torch_copy", "gemm fp32 3", "gemm fp32 8", "loopback stream"}
    names |= {"gemm bf16 3", "gemm bf16 8"}
    assert names | {"loopback round trip"} <= figures.keys()
    for name, figure in figures.items():
        assert 0 < figure.low <= figure.median <= figure.high
        assert (figure.rounds, figure.basis) == (2, "measured")
        if name.split()[0] in units:
            assert figure.unit == units[name.split()[0]]
    assert figures["loopback round trip"].unit == "s"


def test_rates_are_work_over_time() -> None:
    """With a clock of one second a look, each go that is timed takes a second."""
    ticks = itertools.count()
    figures = {one.name: one for one in measure_machine(rounds=3, clock=lambda: float(next(ticks)), **SMALL)}
    assert figures["gemm fp32 8"].median == 2 * 8**3
    assert figures["gemm bf16 3"].median == 2 * 3**3
    assert figures["read torch_sum"].median == 2**16
    assert figures["copy torch_copy"].median == 2 * 2**16
    assert figures["loopback stream"].median == SMALL["stream_bytes"]
    assert figures["loopback round trip"].median == 1.0


def test_without_the_compiled_reader_torch_alone_is_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(*_: object) -> float:
        raise RuntimeError("not built")

    monkeypatch.setattr("dtk_kernels.limits.read", missing)
    names = [one.name for one in measure_machine(rounds=1, **SMALL)]
    assert "read native_read" not in names
    assert "read torch_sum" in names
    assert "not built" in caplog.text


def test_bf16_products_that_would_take_minutes_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dtk.hardware.machine._MAX_GEMM_SECONDS", 0.0)
    names = [one.name for one in measure_machine(rounds=1, **SMALL)]
    assert "gemm fp32 8" in names
    assert not any("bf16" in name for name in names)
    assert "bf16 products of 8 rows are left out" in caplog.text


@pytest.mark.parametrize("busy", [0.0, 90.0])
def test_a_busy_machine_is_said(
    busy: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: busy)
    measure_machine(rounds=1, **SMALL)
    assert ("90 % of the cores busy" in caplog.text) == (busy > 20)


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1])
def test_the_peer_answers_messages_of_any_size(size: int) -> None:
    with Loopback() as loopback:
        for _ in range(3):
            loopback.send(size)


def test_the_loopback_ends_with_its_block() -> None:
    with Loopback() as loopback:
        loopback.send(10)
    with pytest.raises(OSError, match=r"."):
        loopback.send(10)


def test_a_peer_that_is_gone_is_an_error() -> None:
    with Loopback() as loopback:
        loopback._ours.shutdown(socket.SHUT_WR)
        with pytest.raises(OSError, match=r"."):
            loopback.send(2**22)
