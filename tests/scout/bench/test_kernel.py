"""The whole benchmark on tiny shapes: its rows, wrong answers, Ctrl-C, and what it refuses."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dtk.errors import InputError, NotTestableError
from dtk.scout.bench import kernel, memory
from dtk.scout.bench.case import Case
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.contender import Contender
from dtk.scout.bench.kernel import KernelBenchReport, Progress, bench_kernel
from dtk.scout.bench.memory import needed_bytes
from dtk.scout.bench.peers import torch_contenders

pytestmark = [pytest.mark.native, pytest.mark.usefixtures("_small_limits")]

CONFIG = KernelBenchConfig(
    batch=2,
    kv_heads=2,
    group_sizes=(1, 3),
    head_dim=8,
    selected_tokens=40,
    context_tokens=100,
    block_size=16,
    dtypes=("fp32", "bf16"),
    repeats=4,
    time_budget_s=1e6,
)


def rows(report: KernelBenchReport) -> list[tuple[str, int]]:
    return [(row.dtype, row.group_size) for row in report.rows]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_for_each_format_and_group_size(threads: int) -> None:
    parts: list[str] = []
    report = bench_kernel(CONFIG, threads=threads, progress=Progress(part=parts.append))
    assert rows(report) == [("fp32", 1), ("fp32", 3), ("bf16", 1), ("bf16", 3)]
    assert parts == [f"{dtype}, group size {group_size}" for dtype, group_size in rows(report)]
    assert (report.wrong, report.interrupted, report.ours_is_wrong) == ([], False, False)
    for row in report.rows:
        assert row.threads == threads
        assert ("dtk_inline" in row.contenders) == (threads == 1)
        assert row.torch_best_name is not None
        assert row.contenders["dtk"].runs == 4
        assert row.contenders["dtk"].relative_error < 1e-5
        assert row.fraction_of_roofline > 0
        roof = min(row.read_bandwidth_bytes_per_s, row.multiply_adds_per_s * row.kv_bytes / (
            2 * 2 * 2 * 40 * 8
        ) / row.group_size)  # fmt: skip
        assert row.roofline_bytes_per_s == pytest.approx(roof)


def test_torch_gets_its_threads_back() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    progress = Progress(part=lambda _: seen.append(torch.get_num_threads()))
    bench_kernel(CONFIG.model_copy(update={"dtypes": ("fp32",), "repeats": 1}), threads=3, progress=progress)
    assert seen == [3, 3]
    assert torch.get_num_threads() == before


def break_contender(monkeypatch: pytest.MonkeyPatch, factory: str, name: str) -> None:
    make: Callable[..., list[Contender]] = getattr(kernel, factory)

    def broken(*arguments: object) -> list[Contender]:
        return [
            Contender(one.name, lambda one=one: one.run() + 1, one.tolerance) if one.name == name else one
            for one in make(*arguments)
        ]

    monkeypatch.setattr(kernel, factory, broken)


def test_a_wrong_peer_is_named_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    break_contender(monkeypatch, "torch_contenders", "torch_bmm")
    report = bench_kernel(CONFIG, threads=1)
    assert len(report.rows) == len(report.wrong) == 4
    assert report.wrong[0].startswith("torch_bmm, fp32, group size 1: relative error")
    assert all("torch_bmm" not in row.contenders for row in report.rows)
    assert not report.ours_is_wrong


def test_a_wrong_kernel_of_ours_gets_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    break_contender(monkeypatch, "our_contenders", "dtk")
    report = bench_kernel(CONFIG, threads=1)
    assert report.rows == []
    assert report.ours_is_wrong
    assert len(report.wrong) == 4


def test_ctrl_c_keeps_the_rounds_so_far() -> None:
    total = 0

    def interrupt(_: int) -> None:
        nonlocal total
        total += 1
        if total == 6:
            raise KeyboardInterrupt

    report = bench_kernel(CONFIG, threads=1, progress=Progress(round=interrupt))
    assert report.interrupted
    assert rows(report) == [("fp32", 1), ("fp32", 3)]
    assert [row.contenders["dtk"].runs for row in report.rows] == [4, 2]


def test_ctrl_c_between_rounds_keeps_the_rows_so_far() -> None:
    def interrupt(part: str) -> None:
        if part.startswith("bf16"):
            raise KeyboardInterrupt

    report = bench_kernel(CONFIG, threads=1, progress=Progress(part=interrupt))
    assert report.interrupted
    assert rows(report) == [("fp32", 1), ("fp32", 3)]


def test_scaling_comes_last() -> None:
    config = CONFIG.model_copy(update={"scaling": True, "scaling_tokens": 300, "dtypes": ("fp32",)})
    report = bench_kernel(config, threads=1)
    assert report.scaling is not None
    assert [point.selected_tokens for point in report.scaling.by_selected_tokens] == [256, 300]
    assert len(report.rows) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_everyone_but_the_limits_rehearses(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[tuple[set[str], dict[str, Callable[[], torch.Tensor]]]] = []
    order: list[str] = []
    time_in_turn = kernel._Bench.time_in_turn

    def spy(self: Any, runs: dict[str, Any], rehearsals: dict[str, Any]) -> object:
        parts.append((set(runs), rehearsals))
        told = {name: lambda name=name, run=run: (order.append(name), run()) for name, run in runs.items()}

        def rehearse(rehearsal: Callable[[], torch.Tensor]) -> None:
            order.append("rehearsal")
            # One sequence, one KV head.
            assert rehearsal().shape in {(1, 1, 8), (1, 3, 8)}

        rehearsed = {name: lambda one=one: rehearse(one) for name, one in rehearsals.items()}
        return time_in_turn(self, told, rehearsed)

    def llama_cpp(case: Case, *_: object) -> Contender:
        return Contender("llama_cpp", torch_contenders(case)[0].run, 1e-1)

    monkeypatch.setattr(kernel._Bench, "time_in_turn", spy)
    monkeypatch.setattr(kernel, "library_folder", lambda: Path("/nowhere"))
    monkeypatch.setattr(kernel, "llama_cpp_contender", llama_cpp)
    update = {"scaling": True, "scaling_tokens": 300, "repeats": 1}
    bench_kernel(CONFIG.model_copy(update=update), threads=threads)
    limits = {"native_read", "torch_sum", "native_multiply_add", "torch_matmul"}
    assert len(parts) == 6
    assert "llama_cpp" in parts[0][0]
    assert [runs for runs, _ in parts[-2:]] == [{"0", "1"}, {"0", "1", "2", "3"}]
    for runs, rehearsals in parts:
        assert set(rehearsals) >= runs - limits
        assert not set(rehearsals) & limits
    for before, name in zip(["", *order], order, strict=False):
        assert name in {"rehearsal", *limits} or before == "rehearsal"


def test_without_the_compiled_kernels_there_is_nothing_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.status, "instruction_set", lambda: None)
    with pytest.raises(NotTestableError, match="compiled kernels are missing"):
        bench_kernel(CONFIG, threads=1)


def test_too_much_memory_is_refused_before_it_is_taken() -> None:
    config = KernelBenchConfig(context_tokens=2**40, selected_tokens=2**39)
    with pytest.raises(InputError, match=r"needs about .* GiB, and .* GiB are free"):
        bench_kernel(config, threads=1)


def test_memory_counts_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = needed_bytes(CONFIG)
    for free, fits in ((2 * needed, True), (needed, False)):
        monkeypatch.setattr(
            memory.psutil, "virtual_memory", lambda free=free: SimpleNamespace(available=free)
        )
        if fits:
            memory.check_memory(CONFIG)
        else:
            with pytest.raises(InputError):
                memory.check_memory(CONFIG)


def test_needed_memory_holds_the_pools() -> None:
    config = KernelBenchConfig()
    pools = 2 * 4 * 16_384 * 8 * 128 * 4
    assert pools < needed_bytes(config) < 4 * pools
    longer = config.model_copy(update={"context_tokens": 65_536})
    assert needed_bytes(longer) - needed_bytes(config) == 3 * pools
    scaling = config.model_copy(update={"scaling": True, "scaling_tokens": 2**20})
    assert needed_bytes(scaling) > 64 * pools


_PEAK = """
import pathlib, sys, torch
from dtk.scout.bench import memory, scaling_run
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.ours import OurKernel
from dtk.scout.bench.timing import Timings

def peak():
    # Not ru_maxrss, which begins with what the parent process had.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024

config = KernelBenchConfig(batch=int(sys.argv[1]), kv_heads=2, group_sizes=(1,), selected_tokens=64,
                           dtypes=(sys.argv[3],), scaling_tokens=int(sys.argv[2]))
with torch.inference_mode(), OurKernel(1) as kernel:
    def measure(config):
        assert not scaling_run.measure_scaling(config, kernel, lambda _: Timings(), seed=0).wrong
    measure(config.model_copy(update={"scaling_tokens": 256}))
    before = peak()
    measure(config)
    print(peak() - before, memory.scaling_bytes(config))
"""


@pytest.mark.parametrize(("batch", "tokens", "dtype"), [(1, 40_001, "fp32"), (2, 70_000, "bf16")])
def test_scaling_takes_the_memory_that_is_asked_for(batch: int, tokens: int, dtype: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(batch), str(tokens), dtype],
        capture_output=True,
        text=True,
        check=True,
        # A fixed threshold, so that malloc gives large blocks back at once: it otherwise learns to keep them.
        env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(2**20)},
    )
    taken, asked = map(int, done.stdout.split())
    assert 0.4 * asked < taken < asked + 2**24


def test_too_large_a_scaling_names_its_option() -> None:
    config = KernelBenchConfig(scaling=True, scaling_tokens=2**40)
    with pytest.raises(InputError, match="take fewer --scaling-tokens"):
        bench_kernel(config, threads=1)
