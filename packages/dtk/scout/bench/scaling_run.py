"""How our kernel's time grows with the selected tokens, and hardly with the context: the run.

Both are timed over one large pool, in interleaved rounds like everything else. The pool holds the same
random numbers many times over, which changes neither the work nor the memory that is read.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dtk.scout.bench.case import TORCH_DTYPES, gather, oracle, scattered_blocks
from dtk.scout.bench.config import KernelBenchConfig
from dtk.scout.bench.contender import OUR_TOLERANCE, relative_error
from dtk.scout.bench.ours import OurKernel
from dtk.scout.bench.roofline import kv_bytes
from dtk.scout.bench.scaling import Point, Scaling, log_log_slope, token_counts
from dtk.scout.bench.timing import Timings

__all__ = ["measure_scaling"]

_SMALLEST = 256
_RANDOM_VALUES = 2**20 + 7  # not a multiple of a block, so that blocks differ


@dataclass(frozen=True)
class _Size:
    selected_tokens: int
    context_tokens: int
    block_table: Tensor
    block_lengths: Tensor


def measure_scaling(
    config: KernelBenchConfig,
    kernel: OurKernel,
    time_in_turn: Callable[[dict[str, Callable[[], object]]], Timings],
    *,
    seed: int,
) -> Scaling:
    """Check our kernel at every size, then time it, with the first dtype and group size of the settings."""
    run = _ScalingRun(config, kernel, torch.Generator().manual_seed(seed))
    largest = config.scaling_tokens
    fixed = min(config.selected_tokens, largest)
    growing = [run.size(tokens, largest) for tokens in token_counts(min(_SMALLEST, largest), largest)]
    same = [run.size(fixed, context) for context in token_counts(fixed, largest)]
    wrong = [found for size in (*growing, *same) if (found := run.wrong_answer(size))]
    timings: list[Timings] = []
    for sizes in (growing, same):
        stop = wrong or any(one.interrupted for one in timings)
        timings.append(Timings() if stop else time_in_turn(run.calls(sizes)))
    by_selected, by_context = (
        run.points(sizes, timed) for sizes, timed in zip((growing, same), timings, strict=True)
    )
    medians = [point.median_s for point in by_context]
    return Scaling(
        dtype=config.dtypes[0],
        group_size=config.group_sizes[0],
        threads=kernel.threads,
        by_selected_tokens=by_selected,
        log_log_slope=log_log_slope(by_selected),
        by_context_tokens=by_context,
        context_ratio=max(medians) / min(medians) if medians else None,
        wrong=wrong,
        interrupted=any(one.interrupted for one in timings),
    )


class _ScalingRun:
    """One large pool, and selections of it."""

    def __init__(self, config: KernelBenchConfig, kernel: OurKernel, generator: torch.Generator) -> None:
        self.config = config
        self.kernel = kernel
        self.generator = generator
        self.keys, self.values = self._pool(), self._pool()
        heads = config.kv_heads * config.group_sizes[0]
        query = torch.randn(config.batch, heads, config.head_dim, generator=generator)
        self.query = query.to(self.keys.dtype)

    def _pool(self) -> Tensor:
        config = self.config
        blocks = config.batch * self._blocks(config.scaling_tokens)
        shape = (blocks, config.kv_heads, config.block_size, config.head_dim)
        pool = torch.empty(shape, dtype=TORCH_DTYPES[config.dtypes[0]])
        count = min(_RANDOM_VALUES, pool.numel())
        values = torch.randn(count, generator=self.generator).to(pool.dtype)
        for part in pool.view(-1).split(count):
            part.copy_(values[: part.numel()])
        return pool

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def size(self, selected: int, context: int) -> _Size:
        """Select so many tokens of each sequence, scattered over the pool's first blocks, the context."""
        blocks = self._blocks(selected)
        table = scattered_blocks(self.config.batch, self._blocks(context), blocks, self.generator)
        lengths = torch.full_like(table, self.config.block_size)
        lengths[..., -1] = selected - (blocks - 1) * self.config.block_size
        return _Size(selected, context, table, lengths)

    def attend(self, size: _Size) -> Tensor:
        """Run our kernel once."""
        return self.kernel(self.query, self.keys, self.values, size.block_table, size.block_lengths)

    def calls(self, sizes: list[_Size]) -> dict[str, Callable[[], object]]:
        """Return a call for each size, by its index."""

        def call(size: _Size) -> Callable[[], object]:
            return lambda: self.attend(size)

        return {str(index): call(size) for index, size in enumerate(sizes)}

    def wrong_answer(self, size: _Size) -> str:
        """Return what is wrong with our answer at this size; empty if nothing is."""
        output = self.attend(size)
        # A sequence at a time, since the whole selection may not fit into memory a second time.
        error = max(self._error_of_sequence(row, size, output) for row in range(self.config.batch))
        if error <= OUR_TOLERANCE:
            return ""
        return (
            f"dtk, {size.selected_tokens} of {size.context_tokens} tokens: relative error {error:.2e}, above "
            f"{OUR_TOLERANCE:.0e}"
        )

    def _error_of_sequence(self, row: int, size: _Size, output: Tensor) -> float:
        one = slice(row, row + 1)
        keys, values = (
            gather(pool, size.block_table[one], size.selected_tokens) for pool in (self.keys, self.values)
        )
        return relative_error(output[one], oracle(self.query[one], keys, values))

    def points(self, sizes: list[_Size], timings: Timings) -> list[Point]:
        """Return the figures of those sizes that were timed."""
        config, points = self.config, []
        for index, size in enumerate(sizes):
            spread = timings.spread(str(index))
            if spread is None:
                continue
            read = kv_bytes(
                config.batch, config.kv_heads, size.selected_tokens, config.head_dim, config.dtypes[0]
            )
            points.append(
                Point(
                    selected_tokens=size.selected_tokens,
                    context_tokens=size.context_tokens,
                    median_s=spread.median,
                    p10_s=spread.p10,
                    p90_s=spread.p90,
                    runs=spread.count,
                    kv_bandwidth_bytes_per_s=read / spread.median,
                )
            )
        return points
