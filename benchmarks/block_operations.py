"""Time the operations on whole blocks against torch and this machine's limits: see `--help`.

A limit is what torch needs to read (sum or amax, the faster) or to copy (copy_) as many bytes as the
operation must touch at least, timed in turns with it: so a size that fits in a cache has that cache's limit.
Times and ratios are medians over the rounds; "best" compares each one's shortest round, which is what counts
on a machine that is busy with other work.
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
from dtk_kernels.benchmark.timing import interleaved


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
    Console(width=140).print(table(rows))
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
    timings = interleaved(calls, rounds=rounds)
    limit, peer = (min(names, key=timings.median_s) for names in (dict(limit_calls(case)), case.peers))
    return {
        "operation": case.operation,
        "size": case.size,
        "dtype": case.dtype,
        "seconds": timings.median_s("ours"),
        "read_bytes": case.read_bytes,
        "written_bytes": case.written_bytes,
        "limit": limit,
        "limit_s": timings.median_s(limit),
        "fraction_of_limit": timings.median_ratio(limit, "ours"),
        "best_s": timings.best_s("ours"),
        "best_fraction_of_limit": timings.best_s(limit) / timings.best_s("ours"),
        "torch_best": peer,
        "torch_best_s": timings.median_s(peer),
        "speedup_over_torch": timings.median_ratio(peer, "ours"),
        "basis": "measured",
    }


def limit_calls(case: Case) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what bounds the case from below: a plain copy where it writes much, a plain read otherwise."""
    source = torch.ones(max(1, case.read_bytes // 4))
    if 2 * case.written_bytes >= case.read_bytes:
        target = torch.ones(max(1, case.written_bytes // 4))
        yield "copy_", lambda: target.copy_(source[: len(target)])
    else:
        yield "sum", source.sum
        yield "amax", source.amax


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the rows out for reading."""
    result = Table("operation", "size", "dtype", "us", "limit us", "of limit", "best", "torch us", "x torch")
    for row in rows:
        times = [f"{row[name] * 1e6:.1f}" for name in ("seconds", "limit_s", "torch_best_s")]
        fractions = [f"{row[name]:.2f}" for name in ("fraction_of_limit", "best_fraction_of_limit")]
        result.add_row(
            row["operation"], row["size"], row["dtype"], times[0], times[1], *fractions, times[2],
            f"{row['speedup_over_torch']:.2f}",
        )  # fmt: skip
    return result


if __name__ == "__main__":
    main()
