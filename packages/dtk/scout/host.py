"""The host's side of a decode step: attention over missing blocks and recalls, beside the device's work."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from dtk_kernels.kv import gather_blocks, scatter_blocks_
from dtk_kernels.workers import Workers

__all__ = ["HostPartial", "HostWorker", "PendingCopy", "PendingPartial"]


@dataclass(frozen=True)
class HostPartial:
    """What the host attends to for one layer and step.

    Attributes:
        query: [rows, query heads, head size] on the layer's device.
        keys: The host tier's pool; likewise `values`.
        block_table: int32 [rows, 1, n], flat host ids, -1 for nothing.
        block_lengths: int32 [rows, 1, n].
        scale: Factor on the scores, the model's own.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    block_table: Tensor
    block_lengths: Tensor
    scale: float


class PendingPartial(Protocol):
    """A host share under way."""

    def done(self) -> bool:
        """Return whether the result is ready."""

    def wait(self) -> tuple[Tensor, Tensor]:
        """Return output and natural-log LSE, fp32 on the CPU; raises what the worker raised."""


class PendingCopy(Protocol):
    """A recall under way."""

    def wait(self) -> object:
        """Return once whatever the layer's device does next will see the copied blocks."""


class HostWorker:
    """Runs host shares and recalls of all layers, in the order in which they were submitted.

    On CPU tensors the jobs go straight to the kernel layer's threads. With a GPU, one Python thread waits for
    the query to arrive first, so that the thread which launches kernels never does.
    """

    def __init__(self, num_threads: int) -> None:
        self._workers = Workers(num_threads)
        self._arrivals: ThreadPoolExecutor | None = None
        self._copy_streams: dict[torch.device, torch.cuda.Stream] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what was submitted and stop the threads."""
        if self._arrivals is not None:
            self._arrivals.shutdown()
        self._workers.close()

    def submit(self, partial: HostPartial) -> PendingPartial:
        """Start a host share; the result waits to be collected."""
        if partial.query.is_cuda:
            return self._submit_from_gpu(partial)
        return self._workers.submit_sparse_decode_attention(
            partial.query,
            partial.keys,
            partial.values,
            partial.block_table,
            partial.block_lengths,
            partial.scale,
        )

    def _submit_from_gpu(self, partial: HostPartial) -> PendingPartial:
        if self._arrivals is None:
            self._arrivals = ThreadPoolExecutor(1, thread_name_prefix="dtk-scout-arrivals")
        query = partial.query.to("cpu", non_blocking=True)
        table = partial.block_table.to("cpu", non_blocking=True)
        lengths = partial.block_lengths.to("cpu", non_blocking=True)
        arrived = torch.cuda.current_stream(partial.query.device).record_event()

        def run() -> tuple[Tensor, Tensor]:
            arrived.synchronize()
            return self._workers.submit_sparse_decode_attention(
                query, partial.keys, partial.values, table, lengths, partial.scale
            ).wait(take_part=False)

        return _FuturePartial(self._arrivals.submit(run))

    def recall(
        self,
        source: tuple[Tensor, Tensor],
        source_ids: Tensor,
        target: tuple[Tensor, Tensor],
        target_ids: Tensor,
    ) -> PendingCopy:
        """Start copying blocks from host pools (keys, values) into device pools (int32 ids, -1 skipped)."""
        if target[0].is_cuda:
            return self._recall_to_gpu(source, source_ids, target, target_ids)
        return self._workers.submit_copy_blocks(
            [(s, source_ids, t, target_ids) for s, t in zip(source, target, strict=True)]
        )

    def _recall_to_gpu(
        self,
        source: tuple[Tensor, Tensor],
        source_ids: Tensor,
        target: tuple[Tensor, Tensor],
        target_ids: Tensor,
    ) -> PendingCopy:
        device = target[0].device
        stream = self._copy_streams.setdefault(device, torch.cuda.Stream(device))
        ids = source_ids.cpu()
        # The attention that still reads the victims' slots was launched on this stream: copy only behind it.
        stream.wait_stream(torch.cuda.current_stream(device))
        staging = [gather_blocks(pool, ids).pin_memory() for pool in source]
        with torch.cuda.stream(stream):
            for blocks, pool in zip(staging, target, strict=True):
                scatter_blocks_(pool, target_ids, blocks.to(device, non_blocking=True))
        return _StreamCopy(stream.record_event(), device, (*staging, target_ids))


class _FuturePartial:
    """A host share that a Python thread waits for."""

    def __init__(self, future: "Future[tuple[Tensor, Tensor]]") -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> tuple[Tensor, Tensor]:
        return self._future.result()


@dataclass(frozen=True)
class _StreamCopy:
    """A recall on a side stream; keeps the tensors it reads alive until it is waited for."""

    copied: torch.cuda.Event
    device: torch.device
    in_use: tuple[Tensor, ...]

    def wait(self) -> None:
        torch.cuda.current_stream(self.device).wait_event(self.copied)
