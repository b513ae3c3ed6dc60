"""A whole run on a CPU: kernels in the interpreter, tiny cases, clocks that the tests set."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from dtk_kernels.gpu_bench import bench, peers, problems
from dtk_kernels.gpu_bench.cases import Case
from tests.kernels.gpu_bench.fakes import Clock, make_bench

pytestmark = [pytest.mark.interp, pytest.mark.usefixtures("_interpreted")]

CPU = torch.device("cpu")
ATTENTION = Case(
    "sparse_decode_attention", "fp32", 2, tokens=10, block_size=4, group_size=2, num_kv_heads=2, head_dim=16
)


def operations() -> list[Case]:
    """Return a tiny case of every operation that is timed."""
    names = "block_digest", "block_score", "select_blocks", "gather_blocks", "merge_partials"
    small = {"tokens": 12, "block_size": 4, "group_size": 2, "num_kv_heads": 2, "head_dim": 16}
    fake = Case("fake_quantize", "fp32", 2, kv_format="e4m3", **small)
    return [ATTENTION, fake, *(Case(name, "fp32", 2, **small) for name in names)]


def test_a_run_of_every_operation() -> None:
    lines: list[str] = []
    run = make_bench(Clock(), lines)
    report: dict[str, Any] = {"rows": [], "wrong": []}
    saved: list[int] = []
    bench.time_cases(run, operations(), report, lambda: saved.append(len(report["rows"])), run.time)
    assert report["status"] == "complete"
    assert saved == [1, 2, 3, 4, 5, 6, 7, 7]
    assert report["wrong"] == []
    assert [row["operation"] for row in report["rows"]] == [case.operation for case in operations()]
    row = report["rows"][0]
    assert set(row["contenders"]) == {"triton", "triton_eager", "torch_sdpa_on_gathered"}
    assert row["read_bandwidth_bytes_per_s"] == 4096
    assert row["copy_bandwidth_bytes_per_s"] == row["memory_bandwidth_bytes_per_s"] == 8192
    ours = row["contenders"]["triton"]
    assert ours["calls"] == 2
    assert ours["median_s"] == 0.5
    assert ours["bytes_per_s"] == 2 * ATTENTION.moved_bytes
    assert ours["fraction_of_memory_bandwidth"] == 2 * ATTENTION.moved_bytes / 8192
    assert (ours["cuda_graph"], row["contenders"]["triton_eager"]["cuda_graph"]) == (True, False)
    assert report["notes"] == ["flashinfer is not installed"]
    assert any(line.startswith("[7/7] merge_partials") for line in lines)


def test_the_budget_ends_a_run_with_what_there_is() -> None:
    clock = Clock(wall_s_a_call=1.0)
    # A case of five calls takes (3 + 5) * 5 = 40 s: two fit, and the third would not.
    run = make_bench(clock, [], flashinfer=False)
    chosen = [ATTENTION, ATTENTION, ATTENTION, ATTENTION]
    report: dict[str, Any] = {"rows": [], "wrong": []}
    bench.time_cases(run, chosen, report, lambda: None, run.time)
    assert report["status"] == "stopped early"
    assert len(report["rows"]) == 2
    assert report["not_timed"] == [ATTENTION.name] * 2
    assert clock.now_s == 80.0


def test_what_cannot_be_captured_is_called_one_by_one() -> None:
    def refuse(calls: Sequence[object]) -> Callable[[], object]:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    run = make_bench(Clock(), [], capture=refuse, flashinfer=False)
    row = run.time(ATTENTION)
    assert row is not None
    assert not any(each["cuda_graph"] for each in row["contenders"].values())
    reason = "is not captured in a CUDA graph: operation not permitted when stream is capturing"
    assert run.notes == [f"triton {reason}", f"torch_sdpa_on_gathered {reason}"]


def test_wrong_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = problems.Attention.ours
    monkeypatch.setattr(problems.Attention, "ours", lambda self, copy: (right(self, copy)[0] + 0.1, None))
    lines: list[str] = []
    report: dict[str, Any] = {"rows": [], "wrong": []}
    run = make_bench(Clock(), lines, flashinfer=False)
    bench.time_cases(run, [ATTENTION], report, lambda: None, run.time)
    assert report["rows"] == []
    assert report["wrong"] == [ATTENTION.name]
    assert lines == [f"WRONG {ATTENTION.name}: not what torch's attention gives; not timed"]


def test_a_case_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(problems, "problem", fail)
    run = make_bench(Clock(), [], flashinfer=False)
    report: dict[str, Any] = {"rows": [], "wrong": []}
    score = Case("block_score", "fp32", 1)
    bench.time_cases(run, [score, ATTENTION], report, lambda: None, run.time)
    assert report["wrong"] == [score.name]
    assert [row["case"] for row in report["rows"]] == [ATTENTION.name]
    assert run.notes == [
        f"{score.name} failed: OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    ]


def test_sdpa_sees_the_same_tokens() -> None:
    data = problems.attention(ATTENTION, 2, CPU)
    for copy, call in enumerate(peers.sdpa_calls(ATTENTION, data)):
        torch.testing.assert_close(call(), data.ours(copy)[0], rtol=1e-5, atol=1e-5)


def test_flashinfer_takes_no_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(peers.PeerMissingError, match="16-bit keys and values only"):
        peers.flashinfer_calls(ATTENTION, problems.attention(ATTENTION, 1, CPU))


def test_a_flashinfer_that_has_changed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(peers.importlib, "import_module", lambda name: torch)
    case = Case("sparse_decode_attention", "fp16", 1, tokens=8, block_size=4, num_kv_heads=1, head_dim=16)
    with pytest.raises(peers.PeerMissingError, match=r"flashinfer: AttributeError: .*BatchDecodeWithPaged"):
        peers.flashinfer_calls(case, problems.attention(case, 1, CPU))
