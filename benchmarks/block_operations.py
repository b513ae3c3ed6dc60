"""Time the operations on whole blocks against torch and this machine's limits: see `--help`.

A limit is what torch needs to read (sum or amax, the faster) or to copy (copy_) as many bytes as the
operation must touch at least, timed in turns with it: so a size that fits in a cache has that cache's limit.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dtk_kernels import status
from dtk_kernels.benchmark.attention_cases import attention_cases
from dtk_kernels.benchmark.case import Case
from dtk_kernels.benchmark.kv_cases import kv_cases
from dtk_kernels.benchmark.timing import median_seconds


def main() -> None:
    """Run the chosen cases, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="only operations whose name holds this text")
    parser.add_argument(
        "--small", action="store_true", help="one decode step, where the cost of a call rules"
    )
    parser.add_argument("--rounds", type=int, default=7, help="samples of which the median is taken")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as many as a kernel uses that runs on the calling thread
    rows = []
    for operation, make in chain(attention_cases(small=options.small), kv_cases(small=options.small)):
        if options.only in operation:
            rows.append(measured(make(), options.rounds))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    Console(width=130).print(table(rows))
    if options.json:
        result = {
            "instruction_set": status.instruction_set(),
            "torch": torch.__version__,
            "threads": 1,
            "basis": "measured",
            "rows": rows,
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """Check a case, time it, and return its row."""
    case.check()
    calls = {"ours": case.ours, **case.peers, **dict(limit_calls(case))}
    seconds = median_seconds(calls, rounds=rounds)
    peer = min(case.peers, key=seconds.__getitem__)
    limit_s = min(seconds[name] for name in seconds if name in ("sum", "amax", "copy_"))
    return {
        "operation": case.operation,
        "size": case.size,
        "dtype": case.dtype,
        "seconds": seconds["ours"],
        "read_bytes": case.read_bytes,
        "written_bytes": case.written_bytes,
        "limit_s": limit_s,
        "fraction_of_limit": limit_s / seconds["ours"],
        "torch_best": peer,
        "torch_best_s": seconds[peer],
        "speedup_over_torch": seconds[peer] / seconds["ours"],
        "basis": "measured",
    }


def limit_calls(case: Case) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what bounds the case from below: a plain copy where it writes much, a plain read otherwise."""
    source = torch.ones(max(1, case.read_bytes // 4))
    if 2 * case.written_bytes > case.read_bytes:
        target = torch.ones(max(1, case.written_bytes // 4))
        yield "copy_", lambda: target.copy_(source[: len(target)])
    else:
        yield "sum", source.sum
        yield "amax", source.amax


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the rows out for reading."""
    result = Table("operation", "size", "dtype", "us", "limit us", "of limit", "torch us", "x torch")
    for row in rows:
        times = [f"{row[name] * 1e6:.1f}" for name in ("seconds", "limit_s", "torch_best_s")]
        names = [str(row[name]) for name in ("operation", "size", "dtype")]
        ratios = f"{row['fraction_of_limit']:.2f}", f"{row['speedup_over_torch']:.2f}"
        result.add_row(*names, times[0], times[1], ratios[0], times[2], ratios[1])
    return result


if __name__ == "__main__":
    main()
