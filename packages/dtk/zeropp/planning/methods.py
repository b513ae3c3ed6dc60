"""The methods that are compared, each with the space of configurations that it is tuned over.

ZeroPP's space follows the paper and its author's implementation: any P, V and U, groups of D ranks that shard
everything, two ways to treat replicas, full recomputation with the last chunk spared. The others have their
own options and nothing of ZeroPP's. All cut the model into equal stages.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from dtk.pipeline.iteration.run import FSDP, ScheduleChoice
from dtk.workload.states import Sharding
from dtk.zeropp.planning.candidate import Candidate
from dtk.zeropp.planning.problem import ZEROPP, PlanProblem
from dtk.zeropp.planning.spaces import (
    Recomputed,
    chunk_counts,
    divisors,
    micro_batches,
    outermost,
    pinned,
    recomputations,
    shardings,
    tensor_degrees,
    units,
)

__all__ = ["METHODS", "Method"]


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        name: Its name in tables.
        summary: What it is.
        space: Yields its configurations.
    """

    name: str
    summary: str
    space: Callable[[PlanProblem], Iterator[Candidate]]


def _zeropp(problem: PlanProblem) -> Iterator[Candidate]:
    pins = problem.pins
    for ranks in pinned(divisors(problem.machine.num_chips), pins.pipeline_parallel):
        # One pipeline rank is plain sharding, and planned only if asked for.
        if ranks == 1 and pins.pipeline_parallel != 1 and problem.machine.num_chips > 1:
            continue
        for chunks in pinned(chunk_counts(problem, ranks), pins.chunks):
            for base in _sharded(problem, ranks, chunks):
                if _is_pinned(base, problem):
                    yield from _zeropp_schedules(problem, base)


def _is_pinned(candidate: Candidate, problem: PlanProblem) -> bool:
    pins, sharding = problem.pins, candidate.sharding
    if pins.shard_ranks not in (None, sharding.ranks) or pins.micro_batch not in (
        None,
        candidate.micro_batch,
    ):
        return False
    return pins.hybrid in (None, candidate.hybrid)


def _zeropp_schedules(problem: PlanProblem, base: Candidate) -> Iterator[Candidate]:
    pins = problem.pins
    num_microbatches = problem.global_batch // (base.data_parallel * base.micro_batch)
    sizes = units(base.pipeline_parallel, num_microbatches)
    if pins.unit is not None:
        sizes = (pins.unit,) if pins.unit <= num_microbatches else ()
    residents = pinned((1, 2) if base.chunks > 1 else (1,), pins.resident_chunks)
    for kept in recomputations(problem, keeping=True):
        if not _recomputation_is_pinned(problem, kept):
            continue
        # A split backward would compute everything twice over: once for each half.
        splits = (False,) if kept.recomputation == "full" else (True, False)
        for split in splits:
            if pins.split not in (None, split):
                continue
            for unit in sizes:
                for resident in residents:
                    schedule = ScheduleChoice("zeropp", unit=unit, split=split, resident_chunks=resident)
                    yield _recomputing(replace(base, schedule=schedule), kept)


def _recomputation_is_pinned(problem: PlanProblem, kept: Recomputed) -> bool:
    pins = problem.pins
    if pins.recomputation not in (None, kept.recomputation):
        return False
    return kept.recomputation != "full" or pins.keep_last_chunk in (None, kept.keep_last_chunk)


def _recomputing(candidate: Candidate, kept: Recomputed) -> Candidate:
    return replace(candidate, recomputation=kept.recomputation, keep_last_chunk=kept.keep_last_chunk)


def _sharded(problem: PlanProblem, ranks: int, chunks: int) -> Iterator[Candidate]:
    """Yield what a pipeline with sharded parameters shares: layout, groups, micro-batch."""
    data_parallel = problem.machine.num_chips // ranks
    for sharding in shardings(problem, data_parallel):
        for outside in outermost(problem, sharding, data_parallel) if ranks > 1 else (False,):
            for micro_batch in micro_batches(problem, data_parallel):
                yield Candidate(
                    ScheduleChoice("zeropp"),
                    sharding,
                    data_parallel,
                    pipeline_parallel=ranks,
                    chunks=chunks,
                    micro_batch=micro_batch,
                    replicas_outermost=outside,
                )


def _three_d(problem: PlanProblem, least_tensor_parallel: int = 1) -> Iterator[Candidate]:
    for degree in tensor_degrees(problem):
        if degree >= least_tensor_parallel and problem.machine.num_chips % degree == 0:
            for ranks in divisors(problem.machine.num_chips // degree):
                for chunks in chunk_counts(problem, ranks):
                    if chunks == 1 or ranks > 1:
                        yield from _megatron(problem, degree, ranks, chunks)


def _megatron(problem: PlanProblem, degree: int, ranks: int, chunks: int) -> Iterator[Candidate]:
    """Yield 1F1B or, with several chunks, interleaved 1F1B, the optimizer sharded over all replicas."""
    data_parallel = problem.machine.num_chips // (degree * ranks)
    for micro_batch in micro_batches(problem, data_parallel):
        # Megatron-LM interleaves only micro-batches that the pipeline's ranks divide.
        if chunks > 1 and problem.global_batch // (data_parallel * micro_batch) % ranks:
            continue
        for kept in recomputations(problem):
            candidate = Candidate(
                ScheduleChoice("interleaved" if chunks > 1 else "1f1b"),
                Sharding(1, data_parallel) if data_parallel > 1 else Sharding(),
                data_parallel,
                tensor_parallel=degree,
                pipeline_parallel=ranks,
                chunks=chunks,
                micro_batch=micro_batch,
            )
            yield _recomputing(candidate, kept)


def _three_d_with_tp(problem: PlanProblem) -> Iterator[Candidate]:
    return _three_d(problem, least_tensor_parallel=2)


def _fsdp(problem: PlanProblem) -> Iterator[Candidate]:
    chips = problem.machine.num_chips
    groups = {chips, min(chips, problem.machine.chips_per_node)}
    for base in _sharded(problem, 1, problem.shape.num_layers):
        if base.sharding.ranks in groups and base.sharding.optimizer_replicas == 1:
            for reduce in ("microbatch", "end"):
                schedule = ScheduleChoice(FSDP, resident_chunks=2, reduce=reduce)
                for kept in recomputations(problem):
                    yield _recomputing(replace(base, schedule=schedule), kept)


def _breadth_first(problem: PlanProblem) -> Iterator[Candidate]:
    for ranks in divisors(problem.machine.num_chips):
        for chunks in chunk_counts(problem, ranks):
            for base in _sharded(problem, ranks, chunks):
                for resident in (1, 2) if chunks > 1 else (1,):
                    for kept in recomputations(problem):
                        schedule = ScheduleChoice("bfs", resident_chunks=resident)
                        yield _recomputing(replace(base, schedule=schedule), kept)


def _memory_efficient(problem: PlanProblem) -> Iterator[Candidate]:
    for ranks in divisors(problem.machine.num_chips)[1:]:
        if chunk_counts(problem, ranks):
            for base in _sharded(problem, ranks, 1):
                for kept in recomputations(problem):
                    schedule = ScheduleChoice("1f1b", gather="pass", reduce="microbatch")
                    yield _recomputing(replace(base, schedule=schedule), kept)


def _interleaved_sharded(problem: PlanProblem) -> Iterator[Candidate]:
    for ranks in divisors(problem.machine.num_chips)[1:]:
        for chunks in chunk_counts(problem, ranks, least=2):
            for base in _sharded(problem, ranks, chunks):
                if problem.global_batch // (base.data_parallel * base.micro_batch) % ranks:
                    continue
                for resident in sorted({1, 2, chunks}):
                    for kept in recomputations(problem):
                        schedule = ScheduleChoice("interleaved", resident_chunks=resident)
                        yield _recomputing(replace(base, schedule=schedule), kept)


def _split_backward(name: str, chunks: int) -> Callable[[PlanProblem], Iterator[Candidate]]:
    """Return the space of a zero-bubble schedule: the optimizer sharded, or everything."""

    def space(problem: PlanProblem) -> Iterator[Candidate]:
        for ranks in divisors(problem.machine.num_chips)[1:]:
            if chunks not in chunk_counts(problem, ranks):
                continue
            for base in _sharded(problem, ranks, chunks):
                shardings = {base.sharding}
                if base.sharding == Sharding(3, base.data_parallel):
                    optimizer = Sharding(1, base.data_parallel) if base.data_parallel > 1 else Sharding()
                    shardings.add(optimizer)
                for sharding in sorted(shardings, key=lambda each: each.stage):
                    # A split backward and full recomputation do not go together.
                    for kept in recomputations(problem)[:-1]:
                        schedule = ScheduleChoice(name, resident_chunks=chunks)
                        yield _recomputing(replace(base, schedule=schedule, sharding=sharding), kept)

    return space


_ALL = (
    Method(ZEROPP, "units of micro-batches, everything sharded in groups, a split backward", _zeropp),
    Method("3d", "tensor, pipeline and data parallelism, 1F1B or interleaved, ZeRO-1", _three_d),
    Method("3d-tp", "the same with tensor parallelism of 2 at least", _three_d_with_tp),
    Method("fsdp", "everything sharded over all ranks or a node, no pipeline", _fsdp),
    Method("bfs", "breadth-first pipeline, everything sharded", _breadth_first),
    Method("1f1b-zero3", "1F1B, everything sharded, gathered for each micro-batch", _memory_efficient),
    Method("interleaved-zero3", "interleaved 1F1B, everything sharded", _interleaved_sharded),
    Method("zb-h1", "1F1B with a split backward, ZeRO-1 or ZeRO-3", _split_backward("zb-h1", 1)),
    Method("zb-v", "two chunks in a V with a split backward, ZeRO-1 or ZeRO-3", _split_backward("zb-v", 2)),
)

METHODS: Final[Mapping[str, Method]] = MappingProxyType({each.name: each for each in _ALL})
"""All methods by name."""
