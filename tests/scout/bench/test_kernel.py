"""The whole benchmark on tiny shapes: its rows, wrong answers, Ctrl-C, and what it refuses."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from dtk.errors import InputError, NotTestableError
from dtk.scout.bench import kernel, memory
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.contender import Contender
from dtk.scout.bench.kernel import KernelBenchReport, Progress, bench_kernel
from dtk.scout.bench.memory import needed_bytes

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
