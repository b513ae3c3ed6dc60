"""The command line: checks, then cases while the budget lasts.

    python benchmarks/gpu_kernels.py [--json FILE] [--quick | --tune] [--seconds N] [--only TEXT]
                                     [--no-flashinfer]

Exit codes: 0 everything was right, and timed as far as the budget went; 1 a kernel was wrong; 2 bad usage;
3 there is no GPU.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dtk_kernels.gpu_bench.cases import Case, cases, tuned_cases

__all__ = ["main"]

_ROUNDS, _QUICK_ROUNDS = 20, 7
_LIMIT_BYTES = 2**30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line in the module docstring and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="gpu_kernels.py", description="Check the Triton kernels on one NVIDIA GPU, then time them."
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, as it grows")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="a few cases and rounds")
    which.add_argument("--tune", action="store_true", help="compare launch plans of attention instead")
    parser.add_argument("--seconds", type=float, default=280.0, help="budget, default %(default)g")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains TEXT")
    parser.add_argument("--no-flashinfer", action="store_true", help="leave FlashInfer out, if installed")
    options = parser.parse_args(arguments)
    if not options.seconds > 0:
        parser.error(f"--seconds must be positive, got {options.seconds:g}")
    listed = tuned_cases() if options.tune else cases(quick=options.quick)
    chosen = [case for case in listed if options.only in case.name]
    if not chosen:
        parser.error(f"--only must be part of a case's name, got {options.only!r}")
    # The interpreter would take the place of the GPU if this were set when triton is imported.
    os.environ.pop("TRITON_INTERPRET", None)
    import torch

    if not torch.cuda.is_available():
        sys.stderr.write(f"no GPU that torch {torch.__version__} can use: nothing to check or time here\n")
        return 3
    return _run(options, chosen)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _run(options: argparse.Namespace, chosen: Sequence[Case]) -> int:
    import torch

    from dtk_kernels.gpu_bench import bench, checks, report, timing, tune

    device = torch.device("cuda", 0)
    torch.manual_seed(0)
    run = bench.Bench(
        device=device,
        budget=timing.Budget(options.seconds),
        clock=timing.GpuClock(),
        capture=timing.captured,
        cache_bytes=torch.cuda.get_device_properties(device).L2_cache_size,
        limits=bench.Limits(_LIMIT_BYTES, device),
        say=_say,
        flashinfer=not options.no_flashinfer,
        rounds=_QUICK_ROUNDS if options.quick else _ROUNDS,
    )
    result: dict[str, Any] = {
        "schema": report.SCHEMA,
        "basis": "measured",
        "status": "checking",
        **report.environment(),
        "checks": run.check(checks.run_checks(device)),
        "rows": [],
    }
    wrong = {check["operation"] for check in result["checks"] if not check["ok"]}
    result["wrong"] = [case.name for case in chosen if case.operation in wrong]

    def save() -> None:
        result["seconds"] = run.budget.spent_s
        if options.json is not None:
            report.write(options.json, result)

    right = [case for case in chosen if case.operation not in wrong]
    bench.time_cases(run, right, result, save, partial(tune.time, run) if options.tune else run.time)
    sys.stdout.write(report.table(result["rows"]) + "\n")
    for name in result.get("not_timed", []):
        run.say(f"no time left for {name}")
    return 1 if wrong or result["wrong"] else 0
