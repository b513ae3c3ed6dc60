"""Asynchronous host work: submit attention or copies, go on computing, wait for the result.

A `Workers` object owns its threads; there is no global pool. The threads are the compiled module's: they hold
no interpreter lock and never call torch. Without that module a single Python thread runs the references
instead: right, but slow and not free of the lock.

Fork: a child process has none of the threads. Submitting to or waiting for work of the parent raises
RuntimeError there; closing does nothing. Make workers after the fork.
"""

import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import torch

from dtk_kernels._checks import require_count
from dtk_kernels._memory import memory_overlaps, resolved
from dtk_kernels._native_calls import View, require_cpu, view
from dtk_kernels._native_module import native_module, warn_of_reference
from dtk_kernels._worker_threads import Handle, PendingWork, PythonThread
from dtk_kernels.attention.sparse_decode_attention import check as check_attention
from dtk_kernels.attention.sparse_decode_attention.reference import sparse_decode_attention
from dtk_kernels.kv.copy_blocks import check as check_copy
from dtk_kernels.kv.copy_blocks.reference import check_ids, copy_blocks_

if TYPE_CHECKING:
    from dtk_kernels._native import WorkerPool

__all__ = ["BlockCopy", "Job", "Workers"]

_Result = TypeVar("_Result")
BlockCopy = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Job(Generic[_Result]):
    """Work that was submitted to `Workers`. Dropping it neither stops nor endangers the work."""

    def __init__(self, handle: Handle, result: _Result, pending: PendingWork) -> None:
        self._handle = handle
        self._result = result
        self._pending = pending

    def done(self) -> bool:
        """Return whether the work has ended, well or badly. Never blocks."""
        return self._handle.done()

    def wait(self) -> _Result:
        """Block until the work has ended and return its result; may be called again, from any thread.

        Other Python threads run meanwhile, and Ctrl-C ends the waiting.

        Raises:
            Exception: What the worker raised.
        """
        try:
            self._handle.wait()
        finally:
            self._pending.release_ended()
        return self._result


class Workers:
    """Threads that start submitted jobs in the order of submission, each job split over all of them.

    Leaving its `with` block, or dropping it, or the end of the program, finishes what was submitted. Results
    do not depend on the number of threads or on how they are grouped, bit for bit.

    Args:
        num_threads: How many threads work at the same time. Torch's own threads come on top: together they
            should stay within the cores.
        threads_per_sequence: How many of the threads share a sequence of the batch (ScoutAttention, arXiv
            2603.27138: one group of threads a sequence). A group takes up one sequence of a job
            after the other; threads that find none of its tasks left go on to the next at once. None lets all
            threads share every sequence, which also shares out a batch that is smaller than the number of
            groups, or of very unequal sequences: the better choice wherever all cores see the same memory.

    Raises:
        TypeError: A count is no integer.
        ValueError: num_threads is below 1, or threads_per_sequence does not divide it.
        ImportError: The compiled module is missing and `DTK_REQUIRE_NATIVE` is 1.
    """

    def __init__(self, num_threads: int, threads_per_sequence: int | None = None) -> None:
        require_count("num_threads", num_threads, at_least=1)
        if threads_per_sequence is not None:
            require_count("threads_per_sequence", threads_per_sequence, at_least=1)
            if num_threads % threads_per_sequence:
                raise ValueError(
                    f"threads_per_sequence must divide num_threads ({num_threads}) into groups of equal size,"
                    f" got {threads_per_sequence}"
                )
        self.num_threads = num_threads
        self.threads_per_sequence = threads_per_sequence
        self._pending = PendingWork()
        module = native_module()
        self._threads: WorkerPool | PythonThread
        if module is None:
            warn_of_reference()
            self._threads = PythonThread()
        else:
            self._threads = module.WorkerPool(num_threads, threads_per_sequence or num_threads)
        # Runs before the interpreter frees the tensors, whichever way this object ends.
        self._close = weakref.finalize(self, _finish, self._threads, self._pending)

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

        The query and what the table lists of the pools must not change before the job is done; the tables
        may. What the tables hold is checked by the worker, so `Job.wait` raises ValueError for it.

        Raises:
            TypeError: scale is no number.
            ValueError: A shape, dtype, device or stride does not fit, or scale is not finite.
            RuntimeError: The workers are closed, or belong to the process before a fork.
        """
        check_attention(query, keys, values, block_table, block_lengths, scale=scale)
        require_cpu(query=query)
        query, keys, values = resolved(query), resolved(keys), resolved(values)
        output = query.new_empty(query.shape, dtype=torch.float32)
        lse = query.new_empty(query.shape[:2], dtype=torch.float32)
        threads = self._threads
        if isinstance(threads, PythonThread):
            table, lengths = block_table.clone(), block_lengths.clone()

            def run() -> None:
                partial = sparse_decode_attention(query, keys, values, table, lengths, scale=scale)
                output.copy_(partial[0])
                lse.copy_(partial[1])

            return self._start(lambda: threads.submit(run), (output, lse))
        table, lengths = resolved(block_table).contiguous(), resolved(block_lengths).contiguous()
        factor = query.shape[2] ** -0.5 if scale is None else scale
        inputs = (view(query), view(keys), view(values), view(table), view(lengths))
        return self._start(
            lambda: threads.submit_sparse_decode_attention(*inputs, factor, view(output), view(lse)),
            (output, lse),
            query,
            keys,
            values,
            output,
            lse,
        )

    def submit_copy_blocks(self, copies: Sequence[BlockCopy]) -> Job[None]:
        """Start `dtk_kernels.kv.copy_blocks_` for each (source_pool, source_ids, target_pool, target_ids).

        The copies of one job run in any order or at once: none may read or write a block that another writes.
        The blocks must not change before the job is done; the ids may.

        Raises:
            ValueError: A shape, dtype, device or id does not fit (nothing is copied then), a source pool
                shares memory with its target pool, or a target pool has not its own memory for each value.
            RuntimeError: The workers are closed, or belong to the process before a fork.
        """
        for source_pool, source_ids, target_pool, target_ids in copies:
            check_copy(source_pool, source_ids, target_pool, target_ids)
            require_cpu(source_pool=source_pool, target_pool=target_pool)
            if memory_overlaps(source_pool, target_pool):
                raise ValueError("source_pool and target_pool must not share memory when workers copy")
        threads = self._threads
        if isinstance(threads, PythonThread):
            run = _python_copies(copies)
            return self._start(lambda: threads.submit(run), None)
        views: list[tuple[View, View, View, View]] = []
        held: list[torch.Tensor] = []
        for source_pool, source_ids, target_pool, target_ids in copies:
            dense = (
                resolved(source_pool),
                resolved(source_ids).contiguous(),
                target_pool,
                resolved(target_ids).contiguous(),
            )
            views.append((view(dense[0]), view(dense[1]), view(dense[2]), view(dense[3])))
            held.extend(dense)
        return self._start(lambda: threads.submit_copy_blocks(views), None, *held)

    def close(self) -> None:
        """Finish all submitted jobs, then end the threads. Closing again does nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, submit: Callable[[], Handle], result: _Result, *held: torch.Tensor) -> Job[_Result]:
        return Job(self._pending.start(submit, held), result, self._pending)


def _finish(threads: "WorkerPool | PythonThread", pending: PendingWork) -> None:
    threads.close()
    pending.clear()


def _python_copies(copies: Sequence[BlockCopy]) -> Callable[[], None]:
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
