"""`dtk scout bench kernel`: our attention kernel, its peers and the machine's limits, in turn.

For each number format and group size: check every contender against float64, then time them and the limits
in interleaved rounds. Every run finds its K/V in memory and its code in the caches, as in a decode step: the
caches are emptied, and then the contender runs once on next to nothing, its rehearsal.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from dtk.errors import NotTestableError
from dtk.hardware.measure import evict_caches, multiply_add_probes, read_buffer, read_probes
from dtk.scout.bench.case import Case, make_case, make_key_values, oracle
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.contender import Contender, relative_error
from dtk.scout.bench.llama_cpp import LlamaCppUnavailableError, library_folder
from dtk.scout.bench.load import OtherLoad
from dtk.scout.bench.memory import check_memory
from dtk.scout.bench.ours import OurKernel
from dtk.scout.bench.peers import OURS, llama_cpp_contender, our_contenders, torch_contenders
from dtk.scout.bench.rest import openmp_threads_sleep, wait_until_idle
from dtk.scout.bench.rows import Limits, Row, make_row
from dtk.scout.bench.scaling import Scaling
from dtk.scout.bench.scaling_run import measure_scaling
from dtk.scout.bench.timing import Timings, interleave
from dtk_kernels import status
from dtk_kernels.workers import Workers

__all__ = ["KernelBenchReport", "Progress", "bench_kernel"]


@dataclass
class KernelBenchReport:
    """What the benchmark found.

    Attributes:
        rows: One for each number format and group size that was timed.
        scaling: How our kernel's time grows, if that was asked for.
        wrong: Contenders whose answer was wrong, with what was wrong; they were not timed.
        ours_is_wrong: Whether our own kernel was among them.
        llama_cpp: `timed`, or why llama.cpp was not.
        interrupted: Whether Ctrl-C ended it early.
    """

    rows: list[Row] = field(default_factory=list)
    scaling: Scaling | None = None
    wrong: list[str] = field(default_factory=list)
    ours_is_wrong: bool = False
    llama_cpp: str = "not reached"
    interrupted: bool = False


@dataclass(frozen=True)
class Progress:
    """Whom to tell about the progress.

    Attributes:
        part: Called with a description of each part as it begins.
        round: Called after each round with the number of rounds so far.
    """

    part: Callable[[str], object] = lambda _: None
    round: Callable[[int], object] = lambda _: None


def bench_kernel(
    config: KernelBenchConfig, *, threads: int, seed: int = 0, progress: Progress | None = None
) -> KernelBenchReport:
    """Run the benchmark. Torch's thread count is the workers' meanwhile, and is put back afterwards.

    Raises:
        InputError: It needs more memory than is free.
        NotTestableError: The compiled kernels are missing.
    """
    if status.instruction_set() is None:
        raise NotTestableError(
            "the compiled kernels are missing", hint="`dtk doctor` says why; the references are not timed"
        )
    check_memory(config)
    report = KernelBenchReport()
    try:
        with torch_threads(threads), torch.inference_mode(), ExitStack() as stack:
            kernel = stack.enter_context(OurKernel(threads))
            workers = stack.enter_context(Workers(threads))
            bench = _Bench(config, kernel, workers, report, progress or Progress(), seed)
            bench.run_rows()
            if config.scaling and not report.interrupted:
                bench.run_scaling()
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


_Runs = dict[str, Callable[[], object]]


class _Bench:
    def __init__(
        self,
        config: KernelBenchConfig,
        kernel: OurKernel,
        workers: Workers,
        report: KernelBenchReport,
        progress: Progress,
        seed: int,
    ) -> None:
        self.config = config
        self.kernel = kernel
        self.workers = workers  # for the limits
        self.report = report
        self.progress = progress
        self.seed = seed
        self.buffer = read_buffer()
        self.limits = Limits(read_probes(workers, self.buffer), multiply_add_probes(workers))
        self.llama_cpp: Path | None = None
        try:
            self.llama_cpp = library_folder()
            report.llama_cpp = "timed"
        except LlamaCppUnavailableError as error:
            report.llama_cpp = str(error)

    def run_rows(self) -> None:
        """Check and time every number format and group size."""
        for dtype in self.config.dtypes:
            generator = torch.Generator().manual_seed(self.seed)
            kv = make_key_values(self.config, dtype, generator)
            for group_size in self.config.group_sizes:
                self.progress.part(f"{dtype}, group size {group_size}")
                self.run_row(make_case(kv, dtype, group_size, generator))
                if self.report.interrupted:
                    return

    def run_row(self, case: Case) -> None:
        """Check and time one case, and add its row to the report."""
        with ExitStack() as stack:
            contenders = self.contenders(case, stack)
            errors = self.check(case, contenders)
            if OURS not in errors:
                self.report.ours_is_wrong = True
                return
            runs: _Runs = {one.name: one.run for one in contenders if one.name in errors}
            small = self.contenders(self.smallest_case(case.dtype, case.group_size), stack)
            rehearsals: _Runs = {one.name: one.run for one in small}
            load = OtherLoad()
            probes: _Runs = {probe.name: probe.run for probe in self.limits.probes}
            timings = self.time_in_turn(runs | probes, rehearsals)
        self.report.interrupted |= timings.interrupted
        row = make_row(
            self.config,
            dtype=case.dtype,
            group_size=case.group_size,
            threads=self.kernel.threads,
            instruction_set=status.instruction_set(),
            limits=self.limits,
            timings=timings,
            errors=errors,
            other_busy_cores=load.cores(),
        )
        if row is not None:
            self.report.rows.append(row)

    def contenders(self, case: Case, stack: ExitStack) -> list[Contender]:
        """Return all contenders over a case; the stack frees what they hold."""
        contenders = [*our_contenders(case, self.kernel), *torch_contenders(case)]
        if self.llama_cpp is not None:
            try:
                attention = llama_cpp_contender(case, self.kernel.threads, self.llama_cpp, stack)
                contenders.append(attention)
            except LlamaCppUnavailableError as error:
                self.report.llama_cpp = str(error)
        return contenders

    def smallest_case(self, dtype: str, group_size: int) -> Case:
        """Return a case of one sequence, one KV head and one token, to rehearse with."""
        smallest = {"batch": 1, "kv_heads": 1, "selected_tokens": 1, "context_tokens": 1, "block_size": 1}
        config = self.config.model_copy(update=smallest)
        generator = torch.Generator().manual_seed(self.seed)
        return make_case(make_key_values(config, dtype, generator), dtype, group_size, generator)

    def check(self, case: Case, contenders: list[Contender]) -> dict[str, float]:
        """Return the error of each contender that is right, and note down those that are not."""
        expected = oracle(case.query, case.kv.gathered_keys, case.kv.gathered_values)
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

    def time_in_turn(self, runs: _Runs, rehearsals: _Runs) -> Timings:
        """Time all runs in interleaved rounds, each after its rehearsal, in a part's share of the time."""
        return interleave(
            runs,
            max_rounds=self.config.repeats,
            time_budget_s=self.config.time_budget_of_part_s,
            before=lambda name: self.settle(rehearsals.get(name)),
            after_round=self.progress.round,
        )

    def settle(self, rehearsal: Callable[[], object] | None) -> None:
        """Let the threads of the run before come to rest, empty the caches, fetch the code: all begin alike.

        In this order, so that the cores are awake when the run begins.
        """
        if not openmp_threads_sleep():
            wait_until_idle()
        evict_caches(self.workers, self.buffer)
        if rehearsal is not None:
            rehearsal()

    def run_scaling(self) -> None:
        """Measure how our kernel's time grows."""
        self.progress.part("scaling")
        small = self.smallest_case(self.config.dtypes[0], self.config.group_sizes[0])
        rehearsal = our_contenders(small, self.kernel)[0].run
        scaling = measure_scaling(
            self.config,
            self.kernel,
            lambda runs: self.time_in_turn(runs, dict.fromkeys(runs, rehearsal)),
            seed=self.seed,
        )
        self.report.scaling = scaling
        self.report.wrong += scaling.wrong
        self.report.ours_is_wrong |= bool(scaling.wrong)
        self.report.interrupted |= scaling.interrupted
