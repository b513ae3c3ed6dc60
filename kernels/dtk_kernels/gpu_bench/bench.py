"""One run on one device: collects the checks, and times cases while the budget lasts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from dtk_kernels.gpu_bench import peers, problems
from dtk_kernels.gpu_bench.cases import Case
from dtk_kernels.gpu_bench.checks import Check
from dtk_kernels.gpu_bench.timing import Budget, Clock, OutOfTimeError, Times, interleaved, one_by_one

__all__ = ["Bench", "Limits", "time_cases"]

_OURS, _OURS_EAGER = "triton", "triton_eager"  # in a CUDA graph, and called from the host one by one
_ALMOST = 2e-2  # how far torch's attention in 16 bits may be from ours: it rounds its output

Call = Callable[[], object]


class Limits:
    """Plain traffic that shows what the device's memory can do: torch's sum reads, its copy also writes.

    Args:
        num_bytes: how much, in each of two buffers; far more than the caches hold.
        device: where.
    """

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._buffer = torch.ones(num_bytes // 4, device=device)
        self._other = torch.empty_like(self._buffer)
        self.calls: dict[str, Call] = {"sum": self._buffer.sum, "copy": self._copy}

    def _copy(self) -> torch.Tensor:
        return self._other.copy_(self._buffer)

    def bytes_per_s(self, times: Mapping[str, Times]) -> dict[str, float]:
        """Return what the two reached, and the better of them: the bandwidth that others are held against."""
        read = self._buffer.nbytes / times["sum"].median_s
        copy = 2 * self._buffer.nbytes / times["copy"].median_s
        return {
            "read_bandwidth_bytes_per_s": read,
            "copy_bandwidth_bytes_per_s": copy,
            "memory_bandwidth_bytes_per_s": max(read, copy),
        }


@dataclass
class Bench:
    """One run on one device.

    Attributes:
        device: where tensors live.
        budget: wall time left.
        clock: how one run of a call is timed.
        capture: makes one call of a contender's calls, or raises RuntimeError.
        cache_bytes: second-level cache, which the data must not fit.
        limits: plain traffic, timed with every case.
        say: takes a line of progress.
        flashinfer: whether FlashInfer may take part.
        rounds: rounds a case.
        notes: what did not go as planned, once each.
    """

    device: torch.device
    budget: Budget
    clock: Clock
    capture: Callable[[Sequence[Call]], Call]
    cache_bytes: int
    limits: Limits
    say: Callable[[str], None]
    flashinfer: bool = True
    rounds: int = 20
    notes: list[str] = field(default_factory=list)

    def check(self, results: Iterable[Check]) -> list[dict[str, Any]]:
        """Collect checks as they come, and say so."""
        found = []
        for result in results:
            self.say(
                f"{'ok   ' if result.ok else 'WRONG'} {result.operation:24} {result.detail:52}"
                f" error {result.error:.1e}, allowed {result.tolerance:.0e}"
            )
            found.append(asdict(result))
        return found

    def time(self, case: Case) -> dict[str, Any] | None:
        """Time one case; None if what it computes is wrong.

        Raises:
            OutOfTimeError: the budget ends before there are three rounds.
        """
        contenders = self._contenders(case)
        return None if contenders is None else self.measure(case, contenders)

    def measure(self, case: Case, contenders: Mapping[str, Sequence[Call]]) -> dict[str, Any]:
        """Let contenders and plain traffic take turns, and return what came of it.

        Raises:
            OutOfTimeError: the budget ends before there are three rounds.
        """
        runs, counts = dict(self.limits.calls), dict.fromkeys(self.limits.calls, 1)
        captured = {}
        for name, calls in contenders.items():
            runs[name], captured[name] = self._as_one(name, calls)
            counts[name] = len(calls)
        seconds = interleaved(runs, self.clock, self.budget, rounds=self.rounds)
        times = {name: Times.of(each, counts[name]) for name, each in seconds.items()}
        limits = self.limits.bytes_per_s(times)
        row = {"case": case.name, **asdict(case), "moved_bytes": case.moved_bytes, **limits}
        row["contenders"] = {
            name: _figures(case, times[name], limits["memory_bandwidth_bytes_per_s"])
            | {"cuda_graph": captured[name], "calls": counts[name]}
            for name in contenders
        }
        return row

    def _contenders(self, case: Case) -> dict[str, list[Call]] | None:
        copies = problems.copies_for(case.moved_bytes, self.cache_bytes)
        if case.operation != "sparse_decode_attention":
            problem = problems.problem(case, copies, self.device)
            return {_OURS: problem.ours, **problem.peers}
        data = problems.attention(case, copies, self.device)
        ours: list[Call] = [partial(data.ours, copy) for copy in range(copies)]
        others = peers.sdpa_calls(case, data)
        if not torch.allclose(data.ours(0)[0], others[0]().float(), rtol=_ALMOST, atol=_ALMOST):
            self.say(f"WRONG {case.name}: not what torch's attention gives; not timed")
            return None
        found: dict[str, list[Call]] = {_OURS: ours, _OURS_EAGER: ours, "torch_sdpa_on_gathered": [*others]}
        if self.flashinfer:
            try:
                found["flashinfer_batch_decode"] = peers.flashinfer_calls(case, data)
            except peers.PeerMissingError as missing:
                self.note(str(missing))
        return found

    def _as_one(self, name: str, calls: Sequence[Call]) -> tuple[Call, bool]:
        if name != _OURS_EAGER:
            try:
                return self.capture(calls), True
            except RuntimeError as error:
                self.note(f"{name} is not captured in a CUDA graph: {error}".splitlines()[0])
        return one_by_one(calls), False

    def note(self, text: str) -> None:
        """Keep and say what did not go as planned."""
        if text not in self.notes:
            self.notes.append(text)
            self.say(f"note: {text}")


def _figures(case: Case, times: Times, memory_bandwidth: float) -> dict[str, Any]:
    bytes_per_s = case.moved_bytes / times.median_s
    return asdict(times) | {
        "bytes_per_s": bytes_per_s,
        "fraction_of_memory_bandwidth": bytes_per_s / memory_bandwidth,
    }


def time_cases(
    bench: Bench,
    chosen: Sequence[Case],
    report: dict[str, Any],
    save: Call,
    time: Callable[[Case], dict[str, Any] | None],
) -> None:
    """Time cases into the report and save it after each, until all are done or the budget is spent.

    `report["status"]` becomes "complete", or "stopped early" with the cases that are missing. A case that
    fails is noted, and the next one is tried.

    Args:
        bench: the run.
        chosen: which cases.
        report: gets "rows", "wrong" (names), "notes", "status" and perhaps "not_timed" (names).
        save: called after each case and at the end.
        time: returns a case's row, or None if what it computes is wrong; `bench.time` or another.
    """
    longest_s = 0.0
    report["notes"] = bench.notes
    for index, case in enumerate(chosen):
        start = bench.budget.spent_s
        try:
            if not bench.budget.allows(longest_s):
                raise OutOfTimeError
            row = time(case)
        except OutOfTimeError:
            report["status"] = "stopped early"
            report["not_timed"] = [missing.name for missing in chosen[index:]]
            break
        except Exception as error:  # noqa: BLE001 - one run on a rented GPU must tell all it can
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            bench.note(f"{case.name} failed: {reason}")
            row = None
        longest_s = max(longest_s, bench.budget.spent_s - start)
        if row is None:
            report["wrong"].append(case.name)
        else:
            report["rows"].append(row)
            bench.say(f"[{index + 1}/{len(chosen)}] {case.name}: {_ours(row)}")
        save()
    else:
        report["status"] = "complete"
    save()


def _ours(row: Mapping[str, Any]) -> str:
    ours = row["contenders"][_OURS]
    fraction = ours["fraction_of_memory_bandwidth"]
    return f"{ours['median_s'] * 1e6:.1f} us, {fraction:.2f} of the memory's bandwidth"
