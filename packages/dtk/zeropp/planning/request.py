"""From the settings of a plan to the problem that they describe."""

from typing import Final

from dtk.costmodel.constants import stack_constants
from dtk.costmodel.machine import Machine, machine_of
from dtk.costmodel.profile_files import load_profiles
from dtk.errors import InputError
from dtk.hardware.catalogue import load_catalogue
from dtk.pipeline.iteration.memory import usable_bytes
from dtk.workload.reading import load_shape
from dtk.workload.transformer import TransformerShape
from dtk.zeropp.planning.config import PlanConfig
from dtk.zeropp.planning.problem import PlanProblem

__all__ = ["make_problem"]

_MAX_LAYERS: Final = 10_000
_MAX_BATCH: Final = 1_000_000


def make_problem(config: PlanConfig) -> PlanProblem:
    """Return what the settings ask for.

    Raises:
        InputError: If something is missing, unknown, or does not fit.
    """
    shape = load_shape(_given(config.model, "model", "a name such as gpt3-13b, or a file"))
    catalogue = load_catalogue(config.hardware)
    cluster = _given(config.cluster, "cluster", "a name such as 64xA800-200Gb, or NODExCOUNT")
    machine = machine_of(cluster, catalogue)
    _check_sequence(shape, config.sequence_tokens)
    _check_sizes(shape, _global_batch(config))
    return PlanProblem(
        shape,
        machine,
        stack_constants(config.stack),
        _global_batch(config),
        config.sequence_tokens,
        usable_bytes(machine) if config.memory is None else _memory(config.memory, machine),
        recipe=config.recipe,
        flash_attention=config.flash_attention,
        dropout=config.dropout,
        pins=config.pins,
        max_micro_batch=max(config.max_micro_batch, config.micro_batch or 1),
        profiles=() if config.profiles is None else load_profiles(config.profiles, catalogue),
    )


def _given(value: str | None, field: str, hint: str) -> str:
    if value is None:
        raise InputError("is needed", field=field, hint=hint)
    return value


def _global_batch(config: PlanConfig) -> int:
    if config.global_batch is not None:
        return config.global_batch
    tokens, sequence = config.global_batch_tokens, config.sequence_tokens
    if tokens is None:
        raise InputError("is needed", field="global_batch", hint="sequences of an iteration, such as 512")
    if tokens % sequence:
        message = f"must be a multiple of the {sequence} tokens of a sequence"
        below = tokens // sequence * sequence
        near = f"{below} or {below + sequence}" if below else str(sequence)
        raise InputError(message, field="global_batch_tokens", value=tokens, hint=f"try {near}")
    return tokens // sequence


def _memory(size_bytes: int, machine: Machine) -> int:
    whole = machine.chip.memory_bytes
    if size_bytes > whole:
        message = f"is more than the {whole / 2**30:.4g} GiB of {machine.chip.name}"
        # Not the number itself: it may have thousands of digits.
        raise InputError(message, field="memory", hint=f"at most {int(whole)}B")
    return size_bytes


def _check_sizes(shape: TransformerShape, global_batch: int) -> None:
    """Refuse what no search would come to an end with."""
    if shape.num_layers > _MAX_LAYERS:
        message = f"{shape.name} has {shape.num_layers} layers, and up to {_MAX_LAYERS} are planned"
        raise InputError(message, field="model")
    if global_batch > _MAX_BATCH:
        message = f"is more than the {_MAX_BATCH} sequences of an iteration that are planned"
        raise InputError(message, field="global_batch", value=global_batch)


def _check_sequence(shape: TransformerShape, tokens: int) -> None:
    limit = shape.sequence_limit
    if limit is not None and tokens > limit:
        message = f"is longer than the {limit} positions of {shape.name}"
        raise InputError(message, field="sequence_tokens", value=tokens)
