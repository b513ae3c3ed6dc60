"""Asynchronous host work: submit attention or copies, go on computing, wait for the result.

A `Workers` object owns its threads; there is no global pool. Without the native module a single Python thread
runs the references instead: right, but slow and not free of the interpreter lock.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from types import TracebackType
from typing import Generic, Self, TypeVar

import torch

__all__ = ["Job", "Workers"]

_Result = TypeVar("_Result")
_Copy = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Job(Generic[_Result]):
    """Work that was submitted to `Workers`; it keeps its tensors alive until it is done."""

    def __init__(self, future: Future[_Result]) -> None:
        self._future = future

    def done(self) -> bool:
        """Return whether the work has ended, well or badly. Never blocks."""
        return self._future.done()

    def wait(self) -> _Result:
        """Block until the work has ended and return its result; may be called again, from any thread.

        Raises:
            Exception: What the worker raised.
        """
        return self._future.result()


class Workers:
    """Threads that run submitted jobs in the order of submission.

    Args:
        num_threads: How many threads work at the same time. Torch's own threads come on top: together they
            should stay within the cores.

    Raises:
        ValueError: num_threads is below 1.
    """

    def __init__(self, num_threads: int) -> None:
        if num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, got {num_threads}")
        self.num_threads = num_threads
        logging.getLogger(__name__).warning("no native workers yet: one Python thread runs the references")
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dtk-worker")

    def submit_sparse_decode_attention(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        block_table: torch.Tensor,
        block_lengths: torch.Tensor,
        scale: float | None = None,
    ) -> Job[tuple[torch.Tensor, torch.Tensor]]:
        """Start `dtk_kernels.attention.sparse_decode_attention` on CPU tensors; the job returns its result.

        No tensor may be changed before the job is done. What the tables hold is checked by the worker, so
        `Job.wait` raises ValueError for it.

        Raises:
            ValueError: A shape, dtype, device or stride does not fit.
            RuntimeError: The workers are closed.
        """
        operation = import_module("dtk_kernels.attention.sparse_decode_attention")
        operation.check(query, keys, values, block_table, block_lengths, scale=scale)
        _require_cpu(query=query, keys=keys)
        reference = import_module("dtk_kernels.attention.sparse_decode_attention.reference")
        return self._submit(
            lambda: reference.sparse_decode_attention(
                query, keys, values, block_table, block_lengths, scale=scale
            )
        )

    def submit_copy_blocks(self, copies: Sequence[_Copy]) -> Job[None]:
        """Start `dtk_kernels.kv.copy_blocks_` for each (source_pool, source_ids, target_pool, target_ids).

        The pools must not be changed before the job is done, nor the source blocks be its targets.

        Raises:
            ValueError: A shape, dtype, device or id does not fit.
            RuntimeError: The workers are closed.
        """
        operation = import_module("dtk_kernels.kv.copy_blocks")
        for source_pool, source_ids, target_pool, target_ids in copies:
            operation.check(source_pool, source_ids, target_pool, target_ids)
            _require_cpu(source_pool=source_pool, target_pool=target_pool)
        reference = import_module("dtk_kernels.kv.copy_blocks.reference")

        def run() -> None:
            for copy in copies:
                reference.copy_blocks_(*copy)

        return self._submit(run)

    def close(self) -> None:
        """Finish all submitted jobs, then end the threads. Closing again does nothing."""
        self._executor.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _submit(self, function: Callable[[], _Result]) -> Job[_Result]:
        return Job(self._executor.submit(function))


def _require_cpu(**tensors: torch.Tensor) -> None:
    for argument, tensor in tensors.items():
        if tensor.device.type != "cpu":
            raise ValueError(f"{argument} must be a CPU tensor for host workers, got one on {tensor.device}")
