"""Merge of partial attention results by their log-sum-exp, as FlashAttention's online softmax rescales."""

import torch

from dtk_kernels._checks import require_dtype, require_same_device, require_tensors
from dtk_kernels._operation import Operation

__all__ = ["merge_partials"]


def merge_partials(
    outputs: torch.Tensor, lses: torch.Tensor, *, implementation: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Combine partial results over disjoint sets of keys into the result over all of them.

    A partial whose log-sum-exp is -inf is empty: it changes nothing, whatever its output holds.

    Args:
        outputs: float32 `[num_partials, ..., head_dim]`.
        lses: float32 `[num_partials, ...]`, natural logarithm.
        implementation: "reference", "native" or "triton" instead of the best one for the device.

    Returns:
        `(output, lse)`: float32 `[..., head_dim]` and `[...]`; (0, -inf) where all partials are empty.

    Raises:
        ValueError: A shape, dtype or device does not fit, or there is no partial at all.
        NotImplementedError: The named implementation is missing here.
    """
    result: tuple[torch.Tensor, torch.Tensor] = OPERATION(implementation, outputs, lses)
    return result


def _check(outputs: torch.Tensor, lses: torch.Tensor) -> None:
    require_tensors(outputs=outputs, lses=lses)
    require_dtype((torch.float32,), outputs=outputs, lses=lses)
    if lses.dim() < 1 or outputs.shape[:-1] != lses.shape:
        raise ValueError(
            f"outputs must have shape [num_partials, ..., head_dim] and lses the same without head_dim, got"
            f" {list(outputs.shape)} and {list(lses.shape)}"
        )
    if lses.shape[0] < 1:
        raise ValueError("outputs and lses must hold at least one partial, got none")
    require_same_device(outputs=outputs, lses=lses)


def _fake(outputs: torch.Tensor, lses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return outputs.new_empty(outputs.shape[1:]), lses.new_empty(lses.shape[1:])


OPERATION = Operation(
    "merge_partials",
    schema="(Tensor outputs, Tensor lses) -> (Tensor, Tensor)",
    check=_check,
    fake=_fake,
)
