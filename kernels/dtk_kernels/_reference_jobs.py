"""What a Python thread runs in place of compiled jobs: the references, on copies of the tables."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dtk_kernels._native_calls import require_cpu
from dtk_kernels._operation import Operation
from dtk_kernels._table_checks import require_distinct_ids, require_ids_in_range
from dtk_kernels.kv.copy_blocks.reference import check_ids, copy_blocks_
from dtk_kernels.kv.scatter_blocks import OPERATION as SCATTER

__all__ = ["BlockCopy", "reference_copies", "reference_job"]

BlockCopy = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def reference_job(
    operation: Operation, arguments: dict[str, Any], tables: tuple[str, ...]
) -> tuple[Callable[[], None], Any]:
    """Return the work of one operation on checked arguments, and the result that it will fill."""
    first = next(iter(arguments))
    require_cpu(**{first: arguments[first]})
    if "block_ids" in tables:  # compiled jobs look at ids when they are submitted, too
        require_ids_in_range("block_ids", arguments["block_ids"], arguments["pool"].shape[0])
        if operation is SCATTER:
            require_distinct_ids("block_ids", arguments["block_ids"])
    snapshot = arguments | {name: arguments[name].clone() for name in tables}
    result = operation.fake(**arguments)
    reference = operation.load("reference")

    def run() -> None:
        _fill(result, reference(**snapshot))

    return run, result


def reference_copies(copies: Sequence[BlockCopy]) -> Callable[[], None]:
    """Return the work of copying between pools; raises ValueError for wrong ids at once."""
    snapshot = [
        (source, source_ids.clone(), target, target_ids.clone())
        for source, source_ids, target, target_ids in copies
    ]
    for copy in snapshot:
        check_ids(*copy)

    def run() -> None:
        for copy in snapshot:
            copy_blocks_(*copy)

    return run


def _fill(result: Any, values: Any) -> None:
    if isinstance(result, torch.Tensor):
        result.copy_(values)
    elif isinstance(result, tuple):
        for part, value in zip(result, values, strict=True):
            part.copy_(value)
