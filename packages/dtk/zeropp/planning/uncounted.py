"""Configurations whose times or sizes are beyond what the simulation counts, in words."""

from collections.abc import Mapping
from typing import Final

from dtk.errors import InputError
from dtk.pipeline.costs import MAX_TIME_NS

__all__ = ["explain_uncounted", "is_size"]

_WORDS: Final[Mapping[str, str]] = {
    "forward_ns": "a stage's forward pass",
    "input_grad_ns": "a stage's backward pass",
    "weight_grad_ns": "a stage's weight gradients",
    "activation_transfer_ns": "sending an activation to the next stage",
    "gradient_transfer_ns": "sending a gradient to the stage before",
    "unshard_ns": "gathering a stage's weights",
    "reduce_grad_ns": "reducing a stage's gradients",
    "optimizer_ns": "an optimizer step, with what replicas exchange,",
    "activation_bytes": "a stage's activations of one micro-batch",
    "weight_grad_bytes": "what a stage keeps for its weight gradients",
    "parameter_bytes": "a stage's gathered weights",
    "gradient_bytes": "a stage's gradients",
    "activation_message_bytes": "an activation sent to the next stage",
}


def explain_uncounted(error: InputError) -> str:
    """Say which time or size of a configuration is too large to be simulated, with its figure."""
    cause = _cause(error)
    words, value = _WORDS.get(cause.field or ""), cause.value
    if words is None or not isinstance(value, int):
        return error.message
    if (cause.field or "").endswith("_ns"):
        limit_s = MAX_TIME_NS // 10**9
        return f"its time: {words} takes {value / 1e9:.4g} s, and at most {limit_s} s can be simulated"
    return f"its memory: {words} would hold {value / 2**40:.4g} TiB"


def is_size(error: InputError) -> bool:
    """Return whether it is a size that is too large, and not a time."""
    return (_cause(error).field or "").endswith("_bytes")


def _cause(error: InputError) -> InputError:
    return error.__cause__ if isinstance(error.__cause__, InputError) else error
