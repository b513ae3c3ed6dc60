"""The fast search: list schedules under several policies, then local search along the critical path.

Compiled (csrc/scheduling). The list schedules admit a forward only if all begun micro-batches can still
finish within the memory; the local search is late acceptance hill climbing (Burke and Bykov 2017) from each
of them, from the named schedules, and from random ends to the best beginning.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

from dtk.errors import RunFailedError
from dtk.pipeline.optimal.orders import Order
from dtk.pipeline.optimal.problem import SchedulingProblem
from dtk.simulation.native import native_module, why_no_native_module

__all__ = ["Found", "makespan_of", "search"]

_NUM_STARTS = 8
_MAX_INT64 = 2**63 - 1  # more means as good as unlimited


class Found(NamedTuple):
    """The best order that a search found.

    Attributes:
        order: For each rank its tasks.
        makespan_ns: When the last of them ends.
        evaluations: How many orders were timed.
        interrupted: Whether Ctrl-C ended the search early.
    """

    order: Order
    makespan_ns: int
    evaluations: int
    interrupted: bool


def search(
    problem: SchedulingProblem,
    *,
    lower_bound_ns: int,
    max_evaluations: int,
    seed: int,
    named: Iterable[Order] = (),
) -> Found:
    """Return the best order found: never worse than the best of `named`, each of which must fit the memory.

    Raises:
        RunFailedError: If the compiled module is missing.
    """
    module = _module()
    native = _native_problem(module, problem)
    starts = [*named, *_list_schedules(module, native)]
    spans = [_span(module, native, order) for order in starts]
    timed = sorted((span, index) for index, span in enumerate(spans) if span is not None)
    best_first = [starts[index] for _, index in timed[:_NUM_STARTS]]
    return Found(
        *module.search_order(
            native,
            best_first,
            lower_bound=lower_bound_ns,
            max_evaluations=min(max_evaluations, _MAX_INT64),
            seed=seed,
        )
    )


def makespan_of(problem: SchedulingProblem, order: Order) -> int | None:
    """Return when an order ends, or None if its ranks wait for each other.

    Raises:
        RunFailedError: If the compiled module is missing.
        ValueError: If the order misses a task, has it twice or before what it follows.
    """
    module = _module()
    return _span(module, _native_problem(module, problem), order)


def _module() -> ModuleType:
    module = native_module()
    if module is None:
        raise RunFailedError(
            f"the search for schedules is compiled code, and {why_no_native_module()}",
            hint="install dtk with a C++ compiler at hand",
        )
    return module


def _span(module: ModuleType, native: Any, order: Order) -> int | None:
    span: int | None = module.evaluate_order(native, order)
    return span


def _list_schedules(module: ModuleType, native: Any) -> list[Sequence[Sequence[int]]]:
    policies = product((0, 500, 1000), (True, False), (0, 300, 1000), (1000, 500))
    orders = []
    for forward_first, deepest_forward, weight_grad_overrun, memory_share in policies:
        order = module.greedy_order(
            native,
            forward_first=forward_first,
            deepest_forward=deepest_forward,
            weight_grad_overrun=weight_grad_overrun,
            memory_share=memory_share,
        )
        orders.append(order)
    return orders


def _native_problem(module: ModuleType, problem: SchedulingProblem) -> Any:
    costs = problem.costs
    return module.SchedulingProblem(
        rank_of_stage=problem.rank_of_stage,
        num_microbatches=problem.num_microbatches,
        forward=costs.forward_ns,
        input_grad=costs.input_grad_ns,
        weight_grad=costs.weight_grad_ns,
        activation_transfer=costs.activation_transfer_ns,
        gradient_transfer=costs.gradient_transfer_ns,
        activation_bytes=costs.activation_bytes,
        weight_grad_bytes=costs.weight_grad_bytes,
        memory_limit=[min(limit, _MAX_INT64) for limit in problem.memory_limit],
    )
