"""Small planning problems, on which every configuration can be tried."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from dtk.costmodel.constants import stack_constants
from dtk.costmodel.machine import machine_of
from dtk.errors import InputError
from dtk.pipeline.iteration.memory import usable_bytes
from dtk.workload.reading import load_shape
from dtk.zeropp.planning.candidate import Candidate
from dtk.zeropp.planning.evaluation import Evaluated, Evaluator
from dtk.zeropp.planning.problem import Pins, PlanProblem

__all__ = ["GIB", "every_evaluation", "small_problem", "tightened"]

GIB = 2**30


@cache
def small_problem(
    model: str = "gpt3-125m",
    cluster: str = "DGX-A100x1",
    *,
    global_batch: int = 16,
    sequence_tokens: int = 512,
    max_micro_batch: int = 2,
    stack: str = "megatron",
    flash_attention: bool = True,
    pins: Pins | None = None,
) -> PlanProblem:
    machine = machine_of(cluster)
    return PlanProblem(
        load_shape(model),
        machine,
        stack_constants(stack),
        global_batch,
        sequence_tokens,
        usable_bytes(machine),
        flash_attention=flash_attention,
        pins=pins or Pins(),
        max_micro_batch=max_micro_batch,
    )


def tightened(problem: PlanProblem, limit_bytes: float) -> PlanProblem:
    return replace(problem, limit_bytes=int(limit_bytes))


def every_evaluation(problem: PlanProblem, space: Iterable[Candidate]) -> list[Evaluated]:
    """Evaluate each configuration with an evaluator of its own, so that nothing is shared."""
    found = []
    for candidate in space:
        try:
            found.append(Evaluator(problem).evaluate(candidate))
        except InputError:
            continue
    return found
