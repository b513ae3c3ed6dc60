"""Why no configuration has the options that are given: one line about the first that cannot be."""

from collections.abc import Iterable
from typing import NoReturn

from dtk.errors import InputError
from dtk.zeropp.planning.problem import PlanProblem
from dtk.zeropp.planning.spaces import chunk_counts, divisors, micro_batches, shardings

__all__ = ["refuse_empty_space"]


def refuse_empty_space(problem: PlanProblem) -> NoReturn:
    """Say why ZeroPP's space is empty.

    Raises:
        InputError: Always; its fields are settings of `PlanConfig`.
    """
    ranks = _pipelines(problem)
    ranks = _dividing_batch(problem, ranks)
    _check_groups(problem, ranks)
    _check_unit(problem, ranks)
    _check_rest(problem)
    # What is left: each option fits some layout, but no layout fits all.
    given = {name: value for name, value in _given(problem).items() if value is not None}
    text = ", ".join(f"{name} {value}" for name, value in given.items())
    raise InputError("no layout has all of the given options", field="options", value=text)


def _given(problem: PlanProblem) -> dict[str, object]:
    pins = problem.pins
    return {
        "pp": pins.pipeline_parallel,
        "chunks": pins.chunks,
        "unit": pins.unit,
        "shard_ranks": pins.shard_ranks,
        "micro_batch": pins.micro_batch,
        "recomputation": pins.recomputation,
        "hybrid": pins.hybrid,
        "resident_chunks": pins.resident_chunks,
        "split": pins.split,
        "keep_last_chunk": pins.keep_last_chunk,
    }


def _pipelines(problem: PlanProblem) -> list[int]:
    """Return the pipelines that cut machine and model evenly."""
    pins, chips, layers = problem.pins, problem.machine.num_chips, problem.shape.num_layers
    model = f"the {layers} layers of {problem.shape.name}"
    if pins.pipeline_parallel is not None:
        if chips % pins.pipeline_parallel:
            message = f"must divide the {chips} chips of {problem.machine.name}"
            raise InputError(message, field="pp", value=pins.pipeline_parallel, hint=_some(divisors(chips)))
        if not chunk_counts(problem, pins.pipeline_parallel):
            fitting = [each for each in divisors(chips) if layers % each == 0 and each > 1]
            message = f"must divide {model}"
            raise InputError(message, field="pp", value=pins.pipeline_parallel, hint=_some(fitting))
    ranks = [
        each
        for each in divisors(chips)
        if chunk_counts(problem, each) and pins.pipeline_parallel in (None, each)
    ]
    if pins.chunks is not None:
        fitting = [each for each in ranks if pins.chunks in chunk_counts(problem, each)]
        if not fitting:
            possible = sorted({count for each in ranks for count in chunk_counts(problem, each)})
            message = f"times the pipeline's ranks must divide {model}"
            raise InputError(message, field="chunks", value=pins.chunks, hint=_some(possible))
        ranks = fitting
    if pins.pipeline_parallel is None:
        ranks = [each for each in ranks if each > 1 or chips == 1]
        if not ranks:
            message = (
                f"no pipeline of 2 or more of the {chips} chips of {problem.machine.name} divides {model}"
            )
            raise InputError(message, field="model", value=problem.shape.name)
    return ranks


def _dividing_batch(problem: PlanProblem, ranks: list[int]) -> list[int]:
    """Return the pipelines whose replicas divide the batch."""
    micro_batch, chips = problem.pins.micro_batch, problem.machine.num_chips
    wanted = micro_batch or 1
    fitting = [each for each in ranks if problem.global_batch % (chips // each * wanted) == 0]
    if fitting:
        return fitting
    together = min(chips // each * wanted for each in ranks)
    below = problem.global_batch // together * together
    near = f"{below} or {below + together}" if below else str(together)
    message = (
        f"must be a multiple of {together}, data-parallel ranks ({together // wanted}) times micro-batch "
        f"({wanted})"
    )
    raise InputError(message, field="global_batch", value=problem.global_batch, hint=f"try {near}")


def _check_groups(problem: PlanProblem, ranks: list[int]) -> None:
    pins, chips = problem.pins, problem.machine.num_chips
    possible = {
        (sharding.ranks, chips // each // sharding.ranks)
        for each in ranks
        for sharding in shardings(problem, chips // each)
        if micro_batches(problem, chips // each)
    }
    sizes = sorted({size for size, _ in possible})
    if pins.shard_ranks is not None and pins.shard_ranks not in sizes:
        message = "must divide the data-parallel ranks, which are the chips over the pipeline's"
        raise InputError(message, field="shard_ranks", value=pins.shard_ranks, hint=_some(sizes))
    replicas = {count for size, count in possible if pins.shard_ranks in (None, size)}
    if pins.hybrid == "zero3-zero1" and replicas == {1}:
        message = "needs replicas, and here one group has all data-parallel ranks"
        raise InputError(message, field="hybrid", value=pins.hybrid, hint="take smaller --shard-ranks")


def _check_unit(problem: PlanProblem, ranks: list[int]) -> None:
    unit, micro_batch = problem.pins.unit, problem.pins.micro_batch or 1
    most = max(problem.global_batch // (problem.machine.num_chips // each * micro_batch) for each in ranks)
    if unit is not None and unit > most:
        message = f"a pipeline has at most {most} micro-batches"
        raise InputError(message, field="unit", value=unit)


def _check_rest(problem: PlanProblem) -> None:
    pins = problem.pins
    if pins.recomputation == "selective" and problem.flash_attention:
        hint = "none and full differ; or switch flash attention off"
        message = "recomputes what flash attention never keeps"
        if problem.stack.selective_products:
            message = "is not planned with flash attention, where it runs every second product again"
        raise InputError(message, field="recomputation", value="selective", hint=hint)
    if pins.recomputation == "full" and pins.split:
        message = (
            "does not go with full recomputation: each half of a backward would compute everything again"
        )
        raise InputError(message, field="split", value=True)
    if pins.chunks == 1 and (pins.resident_chunks or 1) > 1:
        message = "a rank of one chunk gathers one"
        raise InputError(message, field="resident_chunks", value=pins.resident_chunks)


def _some(values: Iterable[int]) -> str:
    text = ", ".join(map(str, values))
    return f"one of {text}" if text else "none fits"
