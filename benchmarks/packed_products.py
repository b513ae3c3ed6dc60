"""Time packed linear layers on the CPU against torch's float32 `linear`: see `--help`.

Weights come from memory, as they do while a model decodes: each call uses the next of several copies that
together are far larger than the last cache. All calls run in turns on the same number of threads; medians.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dtk_kernels import gemm, quant, status
from dtk_kernels.benchmark.timing import interleaved
from dtk_kernels.workers import Workers

COLD_BYTES = 192 << 20  # of all copies of a weight together

# name, format, block size (0: the whole row), scale format
PACKED = (
    ("e2m1, 32 e8m0", "e2m1", 32, "e8m0"),
    ("e2m1, 32 fp32", "e2m1", 32, "fp32"),
    ("e2m1, 16 fp32", "e2m1", 16, "fp32"),
    ("int8, row fp32", "int8", 0, "fp32"),
    ("int8, 32 fp32", "int8", 32, "fp32"),
)


def main() -> None:
    """Time the chosen products, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--outputs", type=int, default=4096, metavar="N")
    parser.add_argument("--depth", type=int, default=4096, metavar="K")
    parser.add_argument("--rows", type=int, default=1, metavar="M", help="rows of activations")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=21, help="samples of which the median is taken")
    parser.add_argument("--only", default="", metavar="TEXT", help="only weights whose name holds this text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn((options.outputs, options.depth), generator=generator)
    x = torch.randn((options.rows, options.depth), generator=generator)
    # A caller that waits takes part: with one thread fewer than torch has, both use the same number.
    with Workers(max(1, options.threads - 1)) as workers:
        rows = measured(weight, x, workers, options)
    Console(width=110).print(table(rows))
    if options.json:
        shape = {"rows": options.rows, "outputs": options.outputs, "depth": options.depth}
        result = {
            "instruction_set": status.instruction_set(),
            "torch": torch.__version__,
            "threads": options.threads,
            "basis": "measured",
            **shape,
            "results": rows,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measured(
    weight: torch.Tensor, x: torch.Tensor, workers: Workers, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Check and time all products in turns; return a row for each."""
    expected = torch.nn.functional.linear(x.double(), weight.double())
    linears = copies(weight)
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "torch fp32": lambda: torch.nn.functional.linear(x, next(linears))
    }
    weight_bytes = {"torch fp32": 4 * weight.numel()}
    for name, format, block_size, scale_format in PACKED:
        if options.only in name:
            calls[name], weight_bytes[name] = packed_call(
                weight, x, workers, format, block_size or weight.shape[1], scale_format
            )
    errors = {name: float((call() - expected).norm() / expected.norm()) for name, call in calls.items()}
    timings = interleaved(calls, rounds=options.rounds, least_sample_s=5e-3)
    return [
        {
            "weights": name,
            "seconds": timings.median_s(name),
            "weight_bytes": weight_bytes[name],
            "gigabytes_per_second": weight_bytes[name] / timings.median_s(name) / 1e9,
            "speedup_over_torch": timings.median_ratio("torch fp32", name),
            "relative_error": errors[name],
            "basis": "measured",
        }
        for name in calls
    ]


def packed_call(
    weight: torch.Tensor, x: torch.Tensor, workers: Workers, format: str, block_size: int, scale_format: str
) -> tuple[Callable[[], torch.Tensor], int]:
    """Return a call with packed weights in rotation, and their bytes."""
    codes, scales = quant.quantize(
        weight, format, block=(1, block_size), scale_format=scale_format, implementation="reference"
    )
    assert isinstance(scales, torch.Tensor)
    if format == "e2m1":
        codes = quant.pack(codes, implementation="reference")
    pairs = copies(codes, scales)

    def call() -> torch.Tensor:
        packed, factors = next(pairs)
        if workers.num_threads == torch.get_num_threads():  # one thread: without workers
            return gemm.packed_linear(x, packed, factors, format, block_size=block_size)
        return workers.submit_packed_linear(x, packed, factors, format, block_size=block_size).wait()

    return call, codes.nbytes + scales.nbytes


def copies(*tensors: torch.Tensor) -> Iterator[Any]:
    """Yield copies in rotation without end: a tensor, or a tuple of them."""
    count = -(-COLD_BYTES // sum(tensor.nbytes for tensor in tensors))
    made = [tuple(tensor.clone() for tensor in tensors) for _ in range(count)]
    return itertools.cycle(one[0] if len(one) == 1 else one for one in made)


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the rows out for reading."""
    result = Table("weights", "us", "MB", "GB/s", "x torch", "relative error")
    for row in rows:
        result.add_row(
            row["weights"],
            f"{row['seconds'] * 1e6:.0f}",
            f"{row['weight_bytes'] / 1e6:.1f}",
            f"{row['gigabytes_per_second']:.1f}",
            f"{row['speedup_over_torch']:.2f}",
            f"{row['relative_error']:.1e}",
        )
    return result


if __name__ == "__main__":
    main()
