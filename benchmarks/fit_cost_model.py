"""Fit the cost model's constants to half of vTrain's measurements, judge them on the rest: see `--help`.

Every second row of both tables is fitted, the others are judged. The error of a row is that of the logarithm
of its time, softened beyond 5 %, so that rows that stand out among their neighbours do not rule. Each
constant is held near what is known of it by a prior, a log-normal of the width given below. Nine tenths of
the rows are small models inside one node, so that a row of several nodes counts four times. With
`--without-175b` no row of the largest model is fitted, and all of them are judged.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import least_squares

from dtk.costmodel.constants import ChipConstants, StackConstants, chip_constants, stack_constants
from dtk.costmodel.measurements import MeasuredRun, vtrain_multi_node, vtrain_single_node
from dtk.pipeline.iteration.estimate import estimate
from dtk.pipeline.iteration.published import described

PRIORS = {
    "matmul_share": (0.8, 0.08),  # cuBLAS on large products
    "matmul_half_depth": (100, 0.5),
    "memory_share": (0.8, 0.1),  # STREAM-like kernels
    "kernel_s": (1e-5, 0.5),
    "fabric_share": (0.77, 0.05),  # nccl-tests, all-reduce inside a node
    "network_share": (0.85, 0.1),
    "host_layer_s": (1e-3, 0.5),
    "host_collective_s": (3e-5, 1.0),
    "host_micro_batch_s": (2e-3, 1.0),
    "host_iteration_s": (3e-3, 1.0),
    "collective_s": (3e-5, 1.0),
    "transfer_s": (1e-4, 1.0),
}
"""For each fitted constant the median of its prior and the width of its logarithm."""

SOFTENED_BEYOND = 0.05
MULTI_NODE_WEIGHT = 4.0
_LARGEST = 12288
Vector = NDArray[np.float64]


def main() -> None:
    """Fit, print the constants and the errors of both halves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--overlap", action="store_true", help="let weight gradients hide all-reduces")
    parser.add_argument("--without-175b", action="store_true", help="fit no row of 175B, and judge them all")
    parser.add_argument("--json", action="store_true", help="print one object, and no tables")
    given = parser.parse_args()
    chip, stack = chip_constants("A100-SXM-80GB"), stack_constants()
    stack = stack.model_copy(update={"overlap_tensor_parallel": given.overlap})
    multi, single = vtrain_multi_node(), vtrain_single_node()
    several = [run for run in multi[::2] if not (given.without_175b and run.shape.hidden_size == _LARGEST)]
    seen = [*several, *single[::2]]
    weights = np.r_[np.full(len(several), MULTI_NODE_WEIGHT), np.ones(len(single[::2]))]
    fitted = fit(seen, weights, chip, stack)
    chip, stack = with_values(fitted, chip, stack)
    known = set(map(id, seen))
    halves = {"fitted": seen, "judged": [run for run in (*multi, *single) if id(run) not in known]}
    errors = {half: errors_by_group(runs, chip, stack) for half, runs in halves.items()}
    if given.json:
        json.dump({"constants": fitted, "errors": errors}, sys.stdout, indent=2)
    else:
        show(fitted, errors)


def fit(
    runs: Sequence[MeasuredRun], weights: Vector, chip: ChipConstants, stack: StackConstants
) -> dict[str, float]:
    """Return the constants that fit the runs best, each with three significant digits."""
    medians = np.log([median for median, _ in PRIORS.values()])
    widths = np.array([width for _, width in PRIORS.values()])
    measured = np.log([run.measured_s for run in runs])

    def residuals(logarithms: Vector) -> Vector:
        values = dict(zip(PRIORS, np.exp(logarithms).tolist(), strict=True))
        found = (np.log(predict(runs, *with_values(values, chip, stack))) - measured) / SOFTENED_BEYOND
        softened = np.sign(found) * np.sqrt(2 * (np.sqrt(1 + found**2) - 1))
        return np.concatenate([softened * np.sqrt(weights), (logarithms - medians) / widths])

    best = least_squares(residuals, medians, diff_step=1e-3, max_nfev=15).x
    return {name: float(f"{np.exp(value):.3g}") for name, value in zip(PRIORS, best, strict=True)}


def predict(runs: Sequence[MeasuredRun], chip: ChipConstants, stack: StackConstants) -> Vector:
    """Return the seconds of an iteration of each run."""
    found = [estimate(described(run, stack=stack, constants=chip)).iteration_s for run in runs]
    return np.array(found)


def with_values(
    values: dict[str, float], chip: ChipConstants, stack: StackConstants
) -> tuple[ChipConstants, StackConstants]:
    """Return the constants with some replaced."""
    of_chip = {name: value for name, value in values.items() if name in ChipConstants.model_fields}
    of_stack = {name: value for name, value in values.items() if name in StackConstants.model_fields}
    return chip.model_copy(update=of_chip), stack.model_copy(update=of_stack)


def errors_by_group(
    runs: Sequence[MeasuredRun], chip: ChipConstants, stack: StackConstants
) -> dict[str, dict[str, float]]:
    """Return mean, median and worst relative error, in percent, of groups of runs."""
    measured = np.array([run.measured_s for run in runs])
    error = 100 * (predict(runs, chip, stack) / measured - 1)
    groups = {
        "several nodes, tp <= 8": lambda run: _multi(run) and run.layout.tensor_parallel <= 8,
        "several nodes, tp <= 8, 3.6B": lambda run: _sized(run, 3072),
        "several nodes, tp <= 8, 18.4B": lambda run: _sized(run, 6144),
        "several nodes, tp <= 8, 175B": lambda run: _sized(run, _LARGEST),
        "several nodes, tp 16": lambda run: run.layout.tensor_parallel > 8,
        "one node": lambda run: not _multi(run),
    }
    found = {}
    for name, belongs in groups.items():
        own = error[[bool(belongs(run)) for run in runs]]
        if not len(own):
            continue
        found[name] = {
            "rows": len(own),
            "mean_absolute": float(np.abs(own).mean()),
            "median": float(np.median(own)),
            "worst": float(np.abs(own).max()),
        }
    return found


def _multi(run: MeasuredRun) -> bool:
    return run.source.name == "vtrain_multi_node"


def _sized(run: MeasuredRun, hidden_size: int) -> bool:
    return _multi(run) and run.layout.tensor_parallel <= 8 and run.shape.hidden_size == hidden_size


def show(fitted: dict[str, float], errors: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print constants and errors."""
    console = Console()
    constants = Table("constant", "fitted", "prior", "width", title=f"{len(fitted)} fitted constants")
    for name, value in fitted.items():
        median, width = PRIORS[name]
        constants.add_row(name, f"{value:g}", f"{median:g}", f"{width:g}")
    console.print(constants)
    table = Table("half", "rows", "number", "mean |error| %", "median %", "worst %", title="Errors")
    for half, groups in errors.items():
        for name, each in groups.items():
            cells: list[Any] = [f"{each[key]:.2f}" for key in ("mean_absolute", "median", "worst")]
            table.add_row(half, name, str(each["rows"]), *cells)
    console.print(table)


if __name__ == "__main__":
    main()
