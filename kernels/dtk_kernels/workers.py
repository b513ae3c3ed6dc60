"""Asynchronous host work: submit an operation on CPU tensors, go on computing, wait for the result.

A `Workers` object owns its threads; there is no global pool. The threads are the compiled module's: they hold
no interpreter lock and never call torch. Without that module a single Python thread runs the references
instead: right, but slow and not free of the lock.

Fork: a child process has none of the threads. Submitting to or waiting for work of the parent raises
RuntimeError there; closing does nothing. Make workers after the fork.
"""

import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import torch

from dtk_kernels._checks import require_count
from dtk_kernels._memory import memory_overlaps, resolved
from dtk_kernels._native_calls import require_cpu, view
from dtk_kernels._native_module import native_module, warn_of_reference
from dtk_kernels._operation import Operation
from dtk_kernels._reference_jobs import BlockCopy, reference_copies, reference_job
from dtk_kernels._worker_threads import Handle, PendingWork, PythonThread
from dtk_kernels.attention._types import HeadReduction
from dtk_kernels.attention.block_digest import OPERATION as DIGEST
from dtk_kernels.attention.block_score import OPERATION as SCORE
from dtk_kernels.attention.quantized_decode_attention import OPERATION as QUANTIZED_ATTENTION
from dtk_kernels.attention.select_blocks import OPERATION as SELECT
from dtk_kernels.attention.sparse_decode_attention import OPERATION as ATTENTION
from dtk_kernels.gemm.packed_linear import OPERATION as LINEAR
from dtk_kernels.kv.copy_blocks import OPERATION as COPY
from dtk_kernels.kv.gather_blocks import OPERATION as GATHER
from dtk_kernels.kv.scatter_blocks import OPERATION as SCATTER
from dtk_kernels.quant._arguments import Block, resolve
from dtk_kernels.quant._scales import Scales, as_scales
from dtk_kernels.quant.fake_quantize import OPERATION as FAKE_QUANTIZE
from dtk_kernels.quant.quantize import OPERATION as QUANTIZE

if TYPE_CHECKING:
    from dtk_kernels._native import WorkerPool

__all__ = ["BlockCopy", "Job", "Workers"]

_Result = TypeVar("_Result")


class Job(Generic[_Result]):
    """Work that was submitted to `Workers`. Dropping it neither stops nor endangers the work."""

    def __init__(self, handle: Handle, result: _Result, pending: PendingWork) -> None:
        self._handle = handle
        self._result = result
        self._pending = pending

    def done(self) -> bool:
        """Return whether the work has ended, well or badly. Never blocks."""
        return self._handle.done()

    def wait(self, *, take_part: bool = True) -> _Result:
        """Block until the work has ended and return its result; may be called again, from any thread.

        Other Python threads run meanwhile, and Ctrl-C ends the waiting.

        Args:
            take_part: Work on the job's remaining tasks instead of sleeping, as one thread more than the
                workers have, if all earlier jobs are done. It spares the wait for threads to wake up. Workers
                with `threads_per_sequence`, or without the compiled module, are not helped.

        Raises:
            Exception: What the worker raised.
        """
        try:
            self._handle.wait(take_part)
        finally:
            self._pending.release_ended()
        return self._result


class Workers:
    """Threads that start submitted jobs in the order of submission, each job split over all of them.

    Each `submit_...` method takes the arguments of the operation that it names and returns at once. Until the
    job is done, the data that it reads and writes must not change; tables, lengths and ids may, as the job
    has its own copy. They all raise

    - what the operation raises for arguments whose shape, dtype, device or stride does not fit, also for
      tensors that are not on the CPU, and for the ids of gathers, scatters and copies; nothing has been done
      then. What else a table holds is checked by the threads: `Job.wait` raises ValueError for it.
    - RuntimeError if the workers are closed, or belong to the process before a fork.

    Leaving its `with` block, or dropping it, or the end of the program, finishes what was submitted. Results
    do not depend on the number of threads or on how they are grouped, bit for bit.

    Args:
        num_threads: How many threads work at the same time, beside one that waits for a job and takes part
            (`Job.wait`). Torch's own threads come on top: together they should stay within the cores.
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
        """Start `dtk_kernels.attention.sparse_decode_attention`; the job returns (output, lse)."""
        arguments = {
            "query": query, "keys": keys, "values": values, "block_table": block_table,
            "block_lengths": block_lengths, "scale": scale,
        }  # fmt: skip
        return self._submit(ATTENTION, arguments, tables=("block_table", "block_lengths"))

    def submit_quantized_decode_attention(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_scales: torch.Tensor,
        value_scales: torch.Tensor,
        block_table: torch.Tensor,
        block_lengths: torch.Tensor,
        *,
        format: str,
        scale: float | None = None,
    ) -> Job[tuple[torch.Tensor, torch.Tensor]]:
        """Start `dtk_kernels.attention.quantized_decode_attention`; the job returns (output, lse)."""
        arguments = {
            "query": query, "keys": keys, "values": values, "key_scales": key_scales,
            "value_scales": value_scales, "block_table": block_table, "block_lengths": block_lengths,
            "format": format, "scale": scale,
        }  # fmt: skip
        return self._submit(QUANTIZED_ATTENTION, arguments, tables=("block_table", "block_lengths"))

    def submit_block_digest(
        self, keys: torch.Tensor, block_lengths: torch.Tensor
    ) -> Job[tuple[torch.Tensor, torch.Tensor]]:
        """Start `dtk_kernels.attention.block_digest`; the job returns (key_min, key_max)."""
        arguments = {"keys": keys, "block_lengths": block_lengths}
        return self._submit(DIGEST, arguments, tables=("block_lengths",))

    def submit_block_score(
        self,
        query: torch.Tensor,
        key_min: torch.Tensor,
        key_max: torch.Tensor,
        block_table: torch.Tensor,
        *,
        head_reduction: HeadReduction = "layer",
    ) -> Job[torch.Tensor]:
        """Start `dtk_kernels.attention.block_score`; the job returns the scores."""
        arguments = {
            "query": query, "key_min": key_min, "key_max": key_max, "block_table": block_table,
            "head_reduction": head_reduction,
        }  # fmt: skip
        return self._submit(SCORE, arguments, tables=("block_table",))

    def submit_select_blocks(
        self, scores: torch.Tensor, num_selected: int, *, forced: torch.Tensor | None = None
    ) -> Job[torch.Tensor]:
        """Start `dtk_kernels.attention.select_blocks`; the job returns the selected columns."""
        return self._submit(SELECT, {"scores": scores, "num_selected": num_selected, "forced": forced})

    def submit_packed_linear(
        self,
        x: torch.Tensor,
        packed_weight: torch.Tensor,
        scales: torch.Tensor,
        format: str,
        *,
        block_size: int,
        bias: torch.Tensor | None = None,
    ) -> Job[torch.Tensor]:
        """Start `dtk_kernels.gemm.packed_linear`; the job returns the products. `x` may change at once."""
        arguments = {
            "x": x, "packed_weight": packed_weight, "scales": scales, "format": format,
            "block_size": block_size, "bias": bias,
        }  # fmt: skip
        return self._submit(LINEAR, arguments, tables=("x",))

    def submit_gather_blocks(self, pool: torch.Tensor, block_ids: torch.Tensor) -> Job[torch.Tensor]:
        """Start `dtk_kernels.kv.gather_blocks`; the job returns the blocks."""
        return self._submit(GATHER, {"pool": pool, "block_ids": block_ids}, tables=("block_ids",))

    def submit_scatter_blocks(
        self, pool: torch.Tensor, block_ids: torch.Tensor, blocks: torch.Tensor
    ) -> Job[None]:
        """Start `dtk_kernels.kv.scatter_blocks_`, which writes into the pool."""
        arguments = {"pool": pool, "block_ids": block_ids, "blocks": blocks}
        return self._submit(SCATTER, arguments, tables=("block_ids",))

    def submit_copy_blocks(self, copies: Sequence[BlockCopy]) -> Job[None]:
        """Start `dtk_kernels.kv.copy_blocks_` for each (source_pool, source_ids, target_pool, target_ids).

        The copies of one job run in any order or at once: none may read or write a block that another writes.

        Raises:
            ValueError: As for all jobs, or a source pool shares memory with its target pool; nothing is
                copied then.
        """
        copies = list(copies)
        for copy in copies:
            if len(copy) != 4:
                raise ValueError(
                    "copies must hold (source_pool, source_ids, target_pool, target_ids) each, got"
                    f" {len(copy)} values"
                )
        for source_pool, source_ids, target_pool, target_ids in copies:
            COPY.check(source_pool, source_ids, target_pool, target_ids)
            require_cpu(source_pool=source_pool, target_pool=target_pool)
            if memory_overlaps(source_pool, target_pool):
                raise ValueError("source_pool and target_pool must not share memory when workers copy")
        threads = self._threads
        if isinstance(threads, PythonThread):
            run = reference_copies(copies)
            return self._start(lambda: threads.submit(run), None)
        dense = [
            (resolved(source), resolved(source_ids).contiguous(), target, resolved(target_ids).contiguous())
            for source, source_ids, target, target_ids in copies
        ]
        views = [(view(a), view(b), view(c), view(d)) for a, b, c, d in dense]
        return self._start(lambda: threads.submit_copy_blocks(views), None, *chain.from_iterable(dense))

    def submit_quantize(
        self,
        x: torch.Tensor,
        format: str,
        *,
        block: Block | EllipsisType = ...,
        scale_format: str | None = None,
        rounding: str = "nearest",
        random_bits: torch.Tensor | None = None,
    ) -> Job[tuple[torch.Tensor, Scales]]:
        """Start `dtk_kernels.quant.quantize`; the job returns (codes, scales)."""
        layout = resolve(format, block, scale_format)
        arguments = {"x": x, **layout._asdict(), "rounding": rounding, "random_bits": random_bits}
        return self._submit(
            QUANTIZE,
            arguments,
            public_result=lambda filled: (filled[0], as_scales(layout.scale_format, *filled[1:])),
        )

    def submit_fake_quantize(
        self,
        x: torch.Tensor,
        format: str,
        *,
        block: Block | EllipsisType = ...,
        scale_format: str | None = None,
        rounding: str = "nearest",
        random_bits: torch.Tensor | None = None,
    ) -> Job[torch.Tensor]:
        """Start `dtk_kernels.quant.fake_quantize`; the job returns the values."""
        layout = resolve(format, block, scale_format)
        arguments = {"x": x, **layout._asdict(), "rounding": rounding, "random_bits": random_bits}
        return self._submit(FAKE_QUANTIZE, arguments)

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

    def _submit(
        self,
        operation: Operation,
        arguments: dict[str, Any],
        tables: tuple[str, ...] = (),
        public_result: Callable[[Any], Any] = lambda filled: filled,
    ) -> Job[Any]:
        operation.check(**arguments)
        threads = self._threads
        if isinstance(threads, PythonThread):
            run, result = reference_job(operation, arguments, tables)
            return self._start(lambda: threads.submit(run), public_result(result))
        call = operation.prepare(**arguments)
        submit = getattr(threads, f"submit_{operation.name.removesuffix('_')}")
        return self._start(lambda: submit(*call.arguments), public_result(call.result), *call.held)

    def _start(self, submit: Callable[[], Handle], result: _Result, *held: torch.Tensor) -> Job[_Result]:
        return Job(self._pending.start(submit, held), result, self._pending)


def _finish(threads: "WorkerPool | PythonThread", pending: PendingWork) -> None:
    threads.close()
    pending.clear()
