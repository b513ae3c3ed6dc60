"""What a run leaves: one JSON object, written anew and whole after each case, and a table for people."""

import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["SCHEMA", "environment", "table", "write"]

SCHEMA = "dtk_kernels.gpu_bench/1"


def environment() -> dict[str, Any]:
    """Return the GPU, and the versions that figures depend on."""
    import torch
    import triton

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "second_level_cache_bytes": properties.L2_cache_size,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
        },
    }


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write the report as JSON; the file is whole at any time, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
        os.replace(name, path)  # noqa: PTH105 - mkstemp gives a name
    except BaseException:
        os.unlink(name)  # noqa: PTH108
        raise


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the timed cases as text, a line for each contender."""
    lines = [f"{'case':52} {'contender':42} {'us a call':>10} {'GB/s':>8} {'of limit':>9}"]
    for row in rows:
        for name, times in row["contenders"].items():
            lines.append(
                f"{row['case']:52} {name:42} {times['median_s'] * 1e6:10.1f}"
                f" {times['bytes_per_s'] / 1e9:8.0f} {times['fraction_of_memory_bandwidth']:9.2f}"
            )
    return "\n".join(lines)
