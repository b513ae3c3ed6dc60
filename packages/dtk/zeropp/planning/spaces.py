"""What the methods' spaces are made of: divisors, micro-batches, units, ways to shard and to recompute."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dtk.errors import InputError
from dtk.workload.flops import Recomputation
from dtk.workload.parameters import check_tensor_parallel
from dtk.workload.states import Sharding
from dtk.zeropp.planning.problem import PlanProblem

__all__ = [
    "Recomputed",
    "chunk_counts",
    "divisors",
    "micro_batches",
    "outermost",
    "pinned",
    "recomputations",
    "shardings",
    "tensor_degrees",
    "units",
]


@dataclass(frozen=True, slots=True)
class Recomputed:
    """How a micro-batch's backward is run.

    Attributes:
        recomputation: What is computed again.
        keep_last_chunk: Whether the last stage is spared.
    """

    recomputation: Recomputation
    keep_last_chunk: bool = False


_NONE: Final = Recomputed("none")
_SELECTIVE: Final = Recomputed("selective")
_FULL: Final = Recomputed("full")
_FULL_BUT_LAST: Final = Recomputed("full", keep_last_chunk=True)


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending."""
    low = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return tuple(sorted({*low, *(number // each for each in low)}))


def pinned(values: Iterable[int], pin: int | None) -> tuple[int, ...]:
    """Return the values, or of them the one that is given."""
    return tuple(values) if pin is None else tuple(each for each in values if each == pin)


def chunk_counts(problem: PlanProblem, ranks: int, *, least: int = 1) -> tuple[int, ...]:
    """Return the numbers of chunks into which each of so many ranks can cut its layers."""
    layers = problem.shape.num_layers
    if layers % ranks:
        return ()
    return tuple(each for each in divisors(layers // ranks) if each >= least)


def micro_batches(problem: PlanProblem, data_parallel: int) -> tuple[int, ...]:
    """Return the micro-batches that a pipeline's part of the batch divides into."""
    share, rest = divmod(problem.global_batch, data_parallel)
    if rest:
        return ()
    return tuple(each for each in divisors(share) if each <= problem.max_micro_batch)


def tensor_degrees(problem: PlanProblem) -> tuple[int, ...]:
    """Return the tensor-parallel degrees within a node that heads, MLP and sequence divide by."""
    return tuple(each for each in divisors(problem.machine.chips_per_node) if _cuts(problem, each))


def _cuts(problem: PlanProblem, degree: int) -> bool:
    try:
        check_tensor_parallel(problem.shape, degree)
    except InputError:
        return False
    return problem.sequence_tokens % degree == 0


def units(ranks: int, num_microbatches: int) -> tuple[int, ...]:
    """Return the units that are tried: divisors of M, multiples of P, and 2P - 1, where deferral just fills.

    The last unit is short where U does not divide M.
    """
    found = {*divisors(num_microbatches), 2 * ranks - 1, *range(ranks, num_microbatches, ranks)}
    return tuple(sorted(each for each in found if each <= num_microbatches))


def recomputations(problem: PlanProblem, *, keeping: bool = False) -> tuple[Recomputed, ...]:
    """Return what may be computed again; with flash attention none of the attention core is kept to drop.

    That torch runs every second product again, flash attention or not, is not planned.

    Args:
        problem: What is planned.
        keeping: Whether the last stage may be spared.
    """
    selective = () if problem.flash_attention else (_SELECTIVE,)
    return (_NONE, *selective, *((_FULL_BUT_LAST,) if keeping else ()), _FULL)


def shardings(problem: PlanProblem, data_parallel: int) -> Iterator[Sharding]:
    """Yield the ways to shard everything over groups of data-parallel ranks, a node's worth first.

    Replicas of a group keep the same optimizer shards, or shard these among them.
    """
    node = problem.machine.chips_per_node
    sizes = [each for each in divisors(data_parallel) if each > 1 or data_parallel == 1]
    for ranks in sorted(sizes, key=lambda each: (each != node, each)):
        replicas = data_parallel // ranks
        yield Sharding(3, ranks)
        if replicas > 1:
            yield Sharding(3, ranks, replicas)


def outermost(problem: PlanProblem, sharding: Sharding, data_parallel: int) -> tuple[bool, ...]:
    """Return whether replicas may lie outside the pipeline: where that brings its ranks nearer together."""
    has_choice = sharding.ranks < data_parallel and sharding.ranks < problem.machine.chips_per_node
    return (False, True) if has_choice else (False,)
