"""Time the pipeline simulator from a schedule's lists to all figures: see `--help`.

The schedule is ZeroPP's with a split backward, gathers, reductions and transfers; 64 ranks have 4 chunks each
unless told otherwise.
Times are the best of some rounds. Growth is the slope of log time over log actions, 1 for linear.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dtk.pipeline.action import COMPUTE_KINDS
from dtk.pipeline.costs import StageCosts
from dtk.pipeline.generators.zeropp import zeropp
from dtk.pipeline.lowering import add_parameters
from dtk.pipeline.schedule import Schedule
from dtk.pipeline.simulate import simulate
from dtk.simulation.engine import Engine

MICROBATCHES = (32, 128, 512, 3200)
SMALL_MICROBATCHES = (8, 16, 32)


def main() -> None:
    """Simulate the sizes, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--unit", type=int, help="default: twice the ranks")
    parser.add_argument(
        "--small", action="store_true", help="small sizes only, where a call's own cost rules"
    )
    parser.add_argument("--engine", choices=["native", "python"], default="native")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    rows = []
    for microbatches in SMALL_MICROBATCHES if options.small else MICROBATCHES:
        schedule = lowered(options.ranks, options.chunks, microbatches, options.unit)
        rows.append(measured(schedule, options.engine, options.rounds))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    Console(width=100).print(table(rows))
    slope = growth([(row["compute_actions"], row["seconds"]) for row in rows])
    print(f"growth: actions to the power {slope:.2f}")
    if options.json:
        result = {"basis": "measured", "engine": options.engine, "growth": slope, "rows": rows}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def lowered(num_ranks: int, num_chunks: int, num_microbatches: int, unit: int | None) -> Schedule:
    """Return ZeroPP's schedule with gathers and reductions."""
    return add_parameters(zeropp(num_ranks, num_chunks, num_microbatches, unit=unit))


def costs_of(schedule: Schedule) -> StageCosts:
    """Return costs that differ from stage to stage."""
    stages = range(schedule.num_stages)
    return StageCosts.of(
        schedule.num_stages,
        forward_ns=[1_000_000 + 1_000 * stage for stage in stages],
        input_grad_ns=1_000_000,
        weight_grad_ns=[900_000 + 7_000 * (stage % 5) for stage in stages],
        activation_transfer_ns=50_000,
        gradient_transfer_ns=50_000,
        unshard_ns=700_000,
        reduce_grad_ns=800_000,
        optimizer_ns=100_000,
        activation_bytes=1 << 20,
        weight_grad_bytes=1 << 19,
        parameter_bytes=1 << 24,
        gradient_bytes=1 << 25,
        activation_message_bytes=1 << 18,
    )


def measured(schedule: Schedule, engine: Engine, rounds: int) -> dict[str, Any]:
    """Simulate a schedule some times, and return its row."""
    costs, seconds = costs_of(schedule), []
    for _ in range(rounds):
        begin = time.perf_counter()
        result = simulate(schedule, costs, engine=engine)
        seconds.append(time.perf_counter() - begin)
    actions = [action for row in schedule.actions for action in row]
    return {
        "microbatches": schedule.num_microbatches,
        "actions": len(actions),
        "compute_actions": sum(action.kind in COMPUTE_KINDS for action in actions),
        "gathers": sum(result.gathers),
        "seconds": min(seconds),
        "microseconds_per_action": min(seconds) * 1e6 / len(actions),
        "makespan_s": result.makespan_ns * 1e-9,
        "bubble_ratio": float(result.bubble_ratio),
        "basis": "measured",
    }


def growth(points: list[tuple[int, float]]) -> float:
    """Return the slope of the line through the points on logarithmic axes, by least squares."""
    logarithms = [(math.log(size), math.log(seconds)) for size, seconds in points]
    middle = [sum(values) / len(points) for values in zip(*logarithms, strict=True)]
    covariance = sum((x - middle[0]) * (y - middle[1]) for x, y in logarithms)
    return covariance / sum((x - middle[0]) ** 2 for x, _ in logarithms)


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the rows out for reading."""
    result = Table("micro-batches", "actions", "of them compute", "seconds", "us an action", "bubble")
    for row in rows:
        result.add_row(
            str(row["microbatches"]), str(row["actions"]), str(row["compute_actions"]),
            f"{row['seconds']:.4f}", f"{row['microseconds_per_action']:.2f}", f"{row['bubble_ratio']:.4f}",
        )  # fmt: skip
    return result


if __name__ == "__main__":
    main()
