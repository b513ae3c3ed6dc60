"""Our kernel on a given number of threads, as the benchmark runs it."""

from types import TracebackType
from typing import Self

from torch import Tensor

from dtk_kernels.workers import Workers

__all__ = ["OurKernel"]


class OurKernel:
    """Sparse decode attention on the caller's thread and `threads` - 1 others; a context manager.

    The caller takes part, as it does for torch. With one thread that one works and the caller waits.

    Attributes:
        threads: How many threads work.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._workers = Workers(max(threads - 1, 1))

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, block_table: Tensor, block_lengths: Tensor
    ) -> Tensor:
        """Return the output of `sparse_decode_attention`."""
        job = self._workers.submit_sparse_decode_attention(query, keys, values, block_table, block_lengths)
        return job.wait(take_part=self.threads > 1)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._workers.close()
