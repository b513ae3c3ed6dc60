"""Predicted and published bytes of published runs.

Korthikanti et al. print what their formulas give (they check how bytes are counted); the other tables print
the peak that an allocator had, on the fullest chip. Left out: SAILOR's runs on unlike nodes, and torchtitan's
in fp8.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dtk.costmodel import measurements
from dtk.costmodel.measurements import MeasuredMemory, MeasuredRun
from dtk.pipeline.iteration.estimate import estimate
from dtk.pipeline.iteration.published import described

__all__ = ["MAX_ACTIVATION_ERROR", "MemoryAccuracy", "MemoryComparison", "judge_memory"]

MAX_ACTIVATION_ERROR: Final = 0.025
"""The bar for Korthikanti's activations: the mean of absolute relative errors."""


@dataclass(frozen=True, slots=True)
class MemoryComparison:
    """Bytes of the fullest chip of a run.

    Attributes:
        run: Name of the run.
        published_bytes: In print.
        estimated_bytes: What the model says.
    """

    run: str
    published_bytes: int
    estimated_bytes: int

    @property
    def error(self) -> float:
        """Relative error: above 0 where the model holds more."""
        return self.estimated_bytes / self.published_bytes - 1


@dataclass(frozen=True)
class MemoryAccuracy:
    """A table of memory.

    Attributes:
        name: Short name.
        title: What the figures are.
        basis: `published` where measured, `analytic` where the publication's own formula gives them.
        rows: Its rows.
        at_most: What the mean error may be; None where a table is only shown.
    """

    name: str
    title: str
    basis: str
    rows: tuple[MemoryComparison, ...]
    at_most: float | None = None

    @property
    def mean(self) -> float:
        """Mean of absolute relative errors."""
        return statistics.fmean(abs(row.error) for row in self.rows)

    @property
    def worst(self) -> float:
        """Largest absolute relative error."""
        return max(abs(row.error) for row in self.rows)


def judge_memory() -> tuple[MemoryAccuracy, ...]:
    """Predict the memory of every table that prints it; about a second."""
    return (_korthikanti(), *_peaks())


def _korthikanti() -> MemoryAccuracy:
    rows = tuple(
        MemoryComparison(row.name, row.activation_bytes, estimate(described(row)).simulation.peak_bytes[0])
        for row in measurements.korthikanti_memory()
        if row.activation_bytes is not None
    )
    title = "Korthikanti et al., activations of the first stage, 22B to 1T"
    return MemoryAccuracy("korthikanti-activations", title, "analytic", rows, MAX_ACTIVATION_ERROR)


def _peaks() -> tuple[MemoryAccuracy, ...]:
    # Printed once for all numbers of micro-batches.
    zero_bubble = {
        (run.shape, run.schedule): run
        for run in measurements.zero_bubble()
        if run.schedule in {"1f1b", "interleaved"}
    }
    sailor = [run for run in measurements.sailor_plans() if not run.placement]  # as nvidia-smi shows
    return (
        MemoryAccuracy(
            "megatron-pr-482",
            "Megatron-LM, pull request 482: Llama-2 7B on 8 H800s",
            "published",
            _of_runs(measurements.megatron_memory()),
        ),
        MemoryAccuracy(
            "zero-bubble-peaks",
            "Qi et al. (zero bubble), 1F1B and interleaved, in whole GB",
            "published",
            _of_runs(list(zero_bubble.values())),
        ),
        MemoryAccuracy(
            "torchtitan-peaks",
            "torchtitan, Llama 3.1 of 8B in bf16, selective recomputation",
            "published",
            _of_runs([run for run in measurements.torchtitan() if run.precision == "bf16"]),
        ),
        MemoryAccuracy(
            "sailor-gh200-peaks", "SAILOR, OPT-350M in fp32 on GH200s", "published", _of_runs(sailor)
        ),
    )


def _of_runs(runs: Sequence[MeasuredRun | MeasuredMemory]) -> tuple[MemoryComparison, ...]:
    return tuple(
        MemoryComparison(run.name, run.peak_memory_bytes, estimate(described(run)).peak_bytes)
        for run in runs
        if run.peak_memory_bytes is not None
    )
