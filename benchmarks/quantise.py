"""Time the fused quantisers on the CPU against a copy of the same bytes and against torch: see `--help`.

A copy (torch's copy_) reads and writes as many bytes as fake_quantize must. All calls of a case run in turns
on the same number of threads; medians. The source comes from memory: each call takes the next of several
tensors. The target of the copy and our results lie in memory that the process has had before: pages that are
new to it cost more than the copy, whoever writes them.
"""

import argparse
import ctypes
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dtk_kernels import quant, status
from dtk_kernels.benchmark.timing import interleaved
from dtk_kernels.workers import Workers

COLUMNS = 4096
TENSOR_BYTES, NUM_TENSORS = 24 << 20, 4
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
# Threads that wake up after a rest are slow at first, ours and torch's, so that samples are long.
SAMPLE_S, REST_S = 25e-3, 6e-3
REFERENCE_SHARE = 8  # the reference gets that part of the rows, from the cache, and its time is scaled
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

Block = tuple[int | None, int | None] | None


class Case(NamedTuple):
    """One way to quantise."""

    format: str
    block: Block
    scale_format: str
    stochastic: bool = False

    @property
    def name(self) -> str:
        """What the tables say."""
        sizes = (
            ("one",) if self.block is None else ("-" if size is None else str(size) for size in self.block)
        )
        rounding = ", stochastic" if self.stochastic else ""
        return f"{self.format} {'x'.join(sizes)} {self.scale_format}{rounding}"


CASES = [
    Case("e4m3", (1, 128), "fp32"),
    Case("e2m1", (1, 16), "fp32"),
    Case("e2m1", (1, 16), "nvfp4"),
    Case("e2m1", (1, 32), "fp32"),
    Case("e2m1", (1, 32), "e8m0"),
    Case("e2m1", (1, 16), "fp32", stochastic=True),
    Case("e4m3", (128, 128), "fp32"),
    Case("e4m3", (128, 1), "fp32"),
    Case("int8", (1, None), "fp32"),
    Case("e4m3", None, "fp32"),
]


def main() -> None:
    """Time the chosen cases, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name holds this text")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--codes", action="store_true", help="quantize (codes and scales), not fake_quantize")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=11, help="samples of which the median is taken")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    rows = []
    # A caller that waits takes part: with one thread fewer than torch has, both use the same number.
    with Workers(max(1, options.threads - 1)) as workers:
        for case in CASES:
            if options.only in case.name:
                rows.append(measured(case, workers, options))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    Console(width=120).print(table(rows))
    if options.json:
        result = {
            "instruction_set": status.instruction_set(),
            "torch": torch.__version__,
            "threads": options.threads,
            "basis": "measured",
            "rows": rows,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def keep_freed_memory() -> None:
    """Let the allocator give freed memory out again, where it would return it to the system (glibc only)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)
        mallopt(M_TRIM_THRESHOLD, 1 << 30)


def measured(case: Case, workers: Workers, options: argparse.Namespace) -> dict[str, Any]:
    """Check a case, time it, and return its row."""
    dtype = DTYPES[options.dtype]
    shape = (TENSOR_BYTES // dtype.itemsize // COLUMNS, COLUMNS)
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for _ in range(NUM_TENSORS)]
    sources, target = itertools.cycle(tensors), torch.zeros_like(tensors[0])
    calls = quantising_calls(case, workers, options, tensors)
    calls["copy_"] = lambda: target.copy_(next(sources))
    if case == CASES[0] and not options.codes:
        calls["cast"] = lambda: through_float8(next(sources))
    timings = interleaved(calls, rounds=options.rounds, least_sample_s=SAMPLE_S, rest_s=REST_S)
    seconds = {name: timings.median_s(name) for name in calls}
    reference_s = seconds["reference"] * REFERENCE_SHARE
    return {
        "case": case.name,
        "dtype": options.dtype,
        "operation": "quantize" if options.codes else "fake_quantize",
        "seconds": seconds["ours"],
        "copy_s": seconds["copy_"],
        "copy_bytes_per_s": 2 * target.nbytes / seconds["copy_"],
        "fraction_of_copy": seconds["copy_"] / seconds["ours"],
        "reference_s": reference_s,
        "speedup_over_reference": reference_s / seconds["ours"],
        "float8_cast_s": seconds.get("cast"),
        "basis": "measured",
    }


def quantising_calls(
    case: Case, workers: Workers, options: argparse.Namespace, tensors: list[Tensor]
) -> dict[str, Callable[[], object]]:
    """Return our call and the reference's on a part of the rows, checked against each other."""
    generator = torch.Generator().manual_seed(2)
    random_bits = torch.randint(-(2**31), 2**31, tensors[0].shape, generator=generator).to(torch.int32)
    part = len(tensors[0]) // REFERENCE_SHARE
    arguments: dict[str, Any] = {"block": case.block, "scale_format": case.scale_format}
    of_part = dict(arguments)
    if case.stochastic:
        arguments |= {"rounding": "stochastic", "random_bits": random_bits}
        of_part |= {"rounding": "stochastic", "random_bits": random_bits[:part]}
    call = quant.quantize if options.codes else quant.fake_quantize
    submit = workers.submit_quantize if options.codes else workers.submit_fake_quantize
    alone = workers.num_threads == options.threads  # one thread: without workers
    sources = itertools.cycle(tensors)

    def ours() -> object:
        x = next(sources)
        return call(x, case.format, **arguments) if alone else submit(x, case.format, **arguments).wait()

    def on_part(implementation: str) -> object:
        return call(tensors[0][:part], case.format, **of_part, implementation=implementation)

    check(on_part("reference"), on_part("native"))
    return {"ours": ours, "reference": lambda: on_part("reference")}


def check(expected: Any, computed: Any) -> None:
    """Raise AssertionError where our results are not the reference's."""
    both = ([one] if isinstance(one, Tensor) else [one[0], *one[1:]] for one in (expected, computed))
    for wanted, result in zip(*both, strict=True):
        parts = zip(wanted, result, strict=True) if isinstance(wanted, quant.NvScales) else [(wanted, result)]
        for a, b in parts:
            assert torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def through_float8(x: Tensor) -> Tensor:
    """The shortest way to E4M3 in blocks of 128 that torch itself has (not ours in every bit)."""
    blocks = x.view(-1, 128)
    scale = blocks.abs().amax(dim=1, keepdim=True) / 448
    return ((blocks / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale).view(x.shape)


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the rows out for reading."""
    result = Table(
        "operation", "case", "dtype", "ms", "copy ms", "copy GB/s", "of copy", "x reference", "x cast"
    )
    for row in rows:
        cast = row["float8_cast_s"]
        result.add_row(
            *(row[name] for name in ("operation", "case", "dtype")),
            f"{row['seconds'] * 1e3:.2f}",
            f"{row['copy_s'] * 1e3:.2f}",
            f"{row['copy_bytes_per_s'] / 1e9:.1f}",
            f"{row['fraction_of_copy']:.2f}",
            f"{row['speedup_over_reference']:.0f}",
            "" if cast is None else f"{cast / row['seconds']:.1f}",
        )
    return result


if __name__ == "__main__":
    main()
