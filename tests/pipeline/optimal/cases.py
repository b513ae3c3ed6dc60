"""Small scheduling problems drawn from a seed, and what CP-SAT proved about them once.

`python -m tests.pipeline.optimal.cases` proves them anew and writes data/cp_sat_optima.json, in some minutes.
Cases that CP-SAT could not prove within 25 s on one core are left out.
"""

import json
import random
from pathlib import Path

from dtk.pipeline.costs import StageCosts
from dtk.pipeline.optimal.problem import SchedulingProblem
from dtk.pipeline.schedule import loop_placement, v_placement

__all__ = ["OPTIMA", "problem_of", "recorded_optima"]

OPTIMA = Path(__file__).parent / "data" / "cp_sat_optima.json"
NUM_SEEDS = 300


def problem_of(seed: int) -> SchedulingProblem:
    """P <= 4, V <= 2, M <= 6; equal and unequal costs; memory from the least that works to ample.

    No transfer takes longer than an action of compute, so that none queues: CP-SAT takes them as delays.
    """
    source = random.Random(seed)
    num_ranks, num_chunks, microbatches = source.randint(2, 4), source.randint(1, 2), source.randint(1, 6)
    placement = source.choice([loop_placement, v_placement])(num_ranks, num_chunks)
    equal = source.random() < 0.5

    def times(low: int, high: int) -> list[int]:
        drawn = [source.randint(low, high) for _ in placement]
        return drawn[:1] * len(drawn) if equal else drawn

    transfer = source.choice([0, 0, 1, 2])
    held, later = (1, 1) if source.random() < 0.8 else (4, source.randint(1, 3))
    least = held * num_chunks
    limits = [least, least + held, num_ranks * least, num_ranks * least + held, 2 * num_ranks * least, 10**6]
    costs = StageCosts.of(
        len(placement),
        forward_ns=times(4, 12),
        input_grad_ns=times(4, 14),
        weight_grad_ns=times(2, 10),
        activation_transfer_ns=transfer,
        gradient_transfer_ns=transfer,
        activation_bytes=held,
        weight_grad_bytes=later,
    )
    return SchedulingProblem(
        rank_of_stage=placement,
        num_microbatches=microbatches,
        costs=costs,
        memory_limit=(source.choice(limits),) * num_ranks,
    )


def recorded_optima() -> dict[int, int]:
    """The proven optimum of each recorded seed, in nanoseconds."""
    return {int(seed): optimum for seed, optimum in json.loads(OPTIMA.read_text())["optima"].items()}


def _record() -> None:
    from importlib.metadata import version

    from dtk.pipeline.optimal import cp_sat

    optima = {}
    for seed in range(NUM_SEEDS):
        found = cp_sat.solve(problem_of(seed), time_limit_s=25)
        if found.proven:
            optima[seed] = found.lower_bound_ns
    source = f"proved by CP-SAT of OR-tools {version('ortools')}, one thread, 25 s a case"
    OPTIMA.write_text(json.dumps({"source": source, "optima": optima}, indent=1) + "\n")


if __name__ == "__main__":
    _record()
