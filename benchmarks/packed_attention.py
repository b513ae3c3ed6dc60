"""Time sparse decode attention over quantised K/V against our own float32 and float16: see `--help`.

All formats attend to the same selection of blocks, scattered over a pool. K/V come from memory, as they do
while a model decodes: each call takes the next of several selections that share no block. First, answers are
checked against attention in float64 over the dequantised K/V. All calls run in turns on the same number of
threads; times are medians, ratios the medians of those of a round.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dtk_kernels import quant, status
from dtk_kernels.benchmark.timing import interleaved
from dtk_kernels.workers import Job, Workers

PLAIN = {"fp32": torch.float32, "fp16": torch.float16}
# name, format, channels that share a scale (0: all of a token), scale format
PACKED = (
    ("int8, token fp32", "int8", 0, "fp32"),
    ("int8, 32 e8m0", "int8", 32, "e8m0"),
    ("e4m3, token fp32", "e4m3", 0, "fp32"),
    ("e2m1, token fp32", "e2m1", 0, "fp32"),
    ("e2m1, 32 e8m0", "e2m1", 32, "e8m0"),
    ("e2m1, 16 bf16", "e2m1", 16, "bf16"),
)
DISTINCT_BLOCKS = 24  # of a pool; the others repeat them at addresses of their own
TOLERANCE = 1e-5  # of float32 sums, relative to the largest output


@dataclass(frozen=True)
class Stored:
    """K/V pools in one format, the values that they stand for (float32, a few distinct blocks)."""

    pools: tuple[Tensor, ...]  # keys, values and, of quantised ones, their scales
    format: str | None
    keys: Tensor
    values: Tensor

    @property
    def bytes_of_block(self) -> float:
        """Bytes of the K/V of a block of the pool."""
        return sum(pool.nbytes / pool.shape[0] for pool in self.pools)


def main() -> None:
    """Check and time the chosen formats, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--block-size", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096, help="selected, of each sequence")
    parser.add_argument("--selections", type=int, default=8, help="that take turns; the pool holds them all")
    parser.add_argument("--group-sizes", default="1,3", metavar="LIST", help="query heads of a KV head")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help="samples of which the median is taken")
    parser.add_argument("--only", default="", metavar="TEXT", help="only formats whose name holds this text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = measured(options)
    Console(width=110).print(table(rows))
    if options.json:
        shape = {key: value for key, value in vars(options).items() if key not in {"only", "json"}}
        result = {
            "instruction_set": status.instruction_set(),
            "torch": torch.__version__,
            "basis": "measured",
            **shape,
            "results": rows,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Check and time all formats at all group sizes; return a row for each."""
    generator = torch.Generator().manual_seed(0)
    num_blocks = options.tokens // options.block_size
    tables = torch.randperm(options.selections * options.batch * num_blocks, generator=generator)
    selections = list(tables.int().view(options.selections, options.batch, 1, num_blocks))
    stored = dict(stored_formats(options, generator))
    rows = []
    # A caller that waits takes part: with one thread fewer, as many work as the option says.
    with Workers(max(1, options.threads - 1)) as workers:
        for group_size in map(int, options.group_sizes.split(",")):
            query = torch.randn(
                (options.batch, options.kv_heads * group_size, options.head_dim), generator=generator
            )
            calls = {
                name: attention_call(query, kv, selections, options, workers) for name, kv in stored.items()
            }
            errors = {
                name: relative_error(calls[name](), query, kv, selections[0]) for name, kv in stored.items()
            }
            timings = interleaved(calls, rounds=options.rounds, least_sample_s=5e-3)
            for name, kv in stored.items():
                kv_bytes = kv.bytes_of_block * num_blocks * options.batch
                rows.append(
                    {
                        "kv": name,
                        "group_size": group_size,
                        "seconds": timings.median_s(name),
                        "kv_bytes": kv_bytes,
                        "gigabytes_per_second": kv_bytes / timings.median_s(name) / 1e9,
                        "speedup_over_fp32": timings.median_ratio("fp32", name),
                        "speedup_over_fp16": timings.median_ratio("fp16", name),
                        "relative_error": errors[name],
                        "basis": "measured",
                    }
                )
    return rows


def stored_formats(options: argparse.Namespace, generator: torch.Generator) -> Any:
    """Yield name and K/V of each chosen format."""
    num_pool_blocks = options.selections * options.batch * (options.tokens // options.block_size)
    shape = (DISTINCT_BLOCKS, options.kv_heads, options.block_size, options.head_dim)
    keys, values = (torch.randn(shape, generator=generator) for _ in range(2))
    copies = -(-num_pool_blocks // DISTINCT_BLOCKS)

    def pool(blocks: Tensor) -> Tensor:
        stored = blocks.view(torch.uint8).repeat(copies, 1, 1, 1).view(blocks.dtype)
        return stored[:num_pool_blocks]

    for name, dtype in PLAIN.items():
        plain = keys.to(dtype), values.to(dtype)
        yield name, Stored((pool(plain[0]), pool(plain[1])), None, plain[0].float(), plain[1].float())
    for name, format, channels, scale_format in PACKED:
        if options.only not in name:
            continue
        block = (1, channels or options.head_dim)
        parts = [quant.quantize(kv, format, block=block, scale_format=scale_format) for kv in (keys, values)]
        dense = [quant.dequantize(codes, scales, format, block=block) for codes, scales in parts]
        codes = [quant.pack(codes) if format == "e2m1" else codes for codes, _ in parts]
        scales = [scales for _, scales in parts if isinstance(scales, Tensor)]
        yield name, Stored(tuple(map(pool, codes + scales)), format, dense[0], dense[1])


def attention_call(
    query: Tensor, kv: Stored, selections: list[Tensor], options: argparse.Namespace, workers: Workers
) -> Callable[[], Tensor]:
    """Return a call that attends to the next selection, and returns the output."""
    turns = itertools.cycle(selections)
    lengths = torch.full_like(selections[0], options.block_size)
    submit: Callable[..., Job[tuple[Tensor, Tensor]]] = workers.submit_sparse_decode_attention
    if kv.format is not None:
        submit = partial(workers.submit_quantized_decode_attention, format=kv.format)

    def call() -> Tensor:
        job = submit(query, *kv.pools, next(turns), lengths)
        return job.wait(take_part=options.threads > 1)[0]

    return call


def relative_error(output: Tensor, query: Tensor, kv: Stored, selection: Tensor) -> float:
    """Return the largest error of the first sequence's outputs against float64, relative to the largest.

    Raises:
        SystemExit: It is more than float32 sums explain.
    """
    ids = selection[0, 0].long() % DISTINCT_BLOCKS
    # [KV heads, tokens, head size]
    keys, values = (pool[ids].transpose(0, 1).flatten(1, 2).double() for pool in (kv.keys, kv.values))
    grouped = query[0].double().view(keys.shape[0], -1, keys.shape[2])
    scores = grouped @ keys.transpose(1, 2) * keys.shape[2] ** -0.5
    wanted = (scores.softmax(dim=-1) @ values).flatten(0, 1)
    error = float((output[0] - wanted).abs().max() / wanted.abs().max())
    if not error <= TOLERANCE:
        sys.exit(f"wrong answer from {kv.format or 'plain'} K/V: relative error {error:.1e}")
    return error


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the rows out for reading."""
    result = Table("group", "K/V", "us", "MB", "GB/s", "x fp32", "x fp16", "relative error")
    for row in rows:
        result.add_row(
            str(row["group_size"]),
            row["kv"],
            f"{row['seconds'] * 1e6:.0f}",
            f"{row['kv_bytes'] / 1e6:.1f}",
            f"{row['gigabytes_per_second']:.1f}",
            f"{row['speedup_over_fp32']:.2f}",
            f"{row['speedup_over_fp16']:.2f}",
            f"{row['relative_error']:.1e}",
        )
    return result


if __name__ == "__main__":
    main()
