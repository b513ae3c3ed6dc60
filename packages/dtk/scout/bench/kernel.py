"""`dtk scout bench kernel`: our attention kernel, torch's ways and the machine's limits, in turn.

For each number format and group size: check every contender against float64, then time them and the limits
in interleaved rounds, with the caches emptied before every run, since a decode step finds K/V in memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dtk.hardware.measure import (
    Probe,
    evict_caches,
    limit_of,
    multiply_add_probes,
    read_buffer,
    read_probes,
)
from dtk.scout.bench.case import Case, make_case, make_key_values, oracle
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.peers import OURS, Contender, our_contenders, relative_error, torch_contenders
from dtk.scout.bench.roofline import kv_bytes
from dtk.scout.bench.rows import Row, make_row
from dtk.scout.bench.timing import Timings, interleave
from dtk_kernels import status
from dtk_kernels.workers import Workers

__all__ = ["KernelBenchReport", "Progress", "bench_kernel"]


@dataclass
class KernelBenchReport:
    """What the benchmark found.

    Attributes:
        rows: One for each number format and group size that was timed.
        wrong: Contenders whose answer was wrong, with what was wrong; they were not timed.
        ours_is_wrong: Whether our own kernel was among them.
        interrupted: Whether Ctrl-C ended it early.
    """

    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ours_is_wrong: bool = False
    interrupted: bool = False


@dataclass(frozen=True)
class Progress:
    """Whom to tell about the progress.

    Attributes:
        row: Called with a description of each row as it begins.
        round: Called after each round with the number of rounds so far.
    """

    row: Callable[[str], object] = lambda _: None
    round: Callable[[int], object] = lambda _: None


def bench_kernel(
    config: KernelBenchConfig, *, threads: int, seed: int = 0, progress: Progress | None = None
) -> KernelBenchReport:
    """Run the benchmark. Torch's thread count is the workers' meanwhile, and is put back afterwards.

    Raises:
        RuntimeError: The compiled kernels are missing.
    """
    report = KernelBenchReport()
    progress = progress or Progress()
    try:
        with torch_threads(threads), torch.inference_mode(), Workers(threads) as workers:
            bench = _Bench(config, workers, read_buffer(), multiply_add_probes(workers), progress, report)
            for dtype in config.dtypes:
                generator = torch.Generator().manual_seed(seed)
                kv = make_key_values(config, dtype, generator)
                for group_size in config.group_sizes:
                    bench.run_row(make_case(kv, dtype, group_size, generator))
                    if report.interrupted:
                        return report
    except KeyboardInterrupt:
        report.interrupted = True
    return report


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Give torch so many threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class _Bench:
    config: KernelBenchConfig
    workers: Workers
    buffer: Tensor
    multiply_add: list[Probe]
    progress: Progress
    report: KernelBenchReport

    def run_row(self, case: Case) -> None:
        """Check and time one case, and add its row to the report."""
        self.progress.row(f"{case.dtype}, group size {case.group_size}")
        contenders = [*our_contenders(case, self.workers), *torch_contenders(case)]
        errors = self.check(case, contenders)
        if OURS not in errors:
            self.report.ours_is_wrong = True
            return
        read = read_probes(self.workers, self.buffer)
        runs: dict[str, Callable[[], object]] = {
            one.name: one.run for one in contenders if one.name in errors
        }
        runs |= {probe.name: probe.run for probe in [*read, *self.multiply_add]}
        config = self.config
        timings = interleave(
            runs,
            max_rounds=config.repeats,
            time_budget_s=config.time_budget_s / (len(config.dtypes) * len(config.group_sizes)),
            before=lambda: evict_caches(self.workers, self.buffer),
            after_round=self.progress.round,
        )
        self.report.interrupted |= timings.interrupted
        if all(timings.samples[name] for name in (OURS, *(one.name for one in (*read, *self.multiply_add)))):
            self.report.rows.append(self.row(case, read, timings, errors))

    def check(self, case: Case, contenders: list[Contender]) -> dict[str, float]:
        """Return the error of each contender that is right, and note down those that are not."""
        expected = oracle(case)
        errors = {}
        for contender in contenders:
            error = relative_error(contender.run(), expected)
            if error <= contender.tolerance:
                errors[contender.name] = error
            else:
                self.report.wrong.append(
                    f"{contender.name}, {case.dtype}, group size {case.group_size}: relative error "
                    f"{error:.2e}, above {contender.tolerance:.0e}"
                )
        return errors

    def row(self, case: Case, read: list[Probe], timings: Timings, errors: dict[str, float]) -> Row:
        """Work out the row of a case that was timed."""
        config = self.config
        spreads = {name: spread for name in timings.samples if (spread := timings.spread(name)) is not None}
        seconds = {name: spread.median_s for name, spread in spreads.items()}
        return make_row(
            dtype=case.dtype,
            group_size=case.group_size,
            threads=self.workers.num_threads,
            instruction_set=status.instruction_set(),
            kv_bytes=kv_bytes(
                config.batch, config.kv_heads, config.selected_tokens, config.head_dim, case.dtype
            ),
            read_limit=limit_of(read, seconds),
            multiply_add_limit=limit_of(self.multiply_add, seconds),
            spreads={name: spread for name, spread in spreads.items() if name in errors},
            errors=errors,
        )
