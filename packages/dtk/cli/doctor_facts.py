"""What `dtk doctor` finds out about this machine. Nothing here judges, and a broken part stops no other part.

Ray is imported and not started; sizes of caches are summed for a second at most.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

import dtk

__all__ = ["collect"]

_DISTRIBUTION = "dtk-llm"
_OTHER_DISTRIBUTION = "dtk"  # an unrelated package on PyPI that installs into the same folder
_SIZE_TIME_LIMIT_S = 1.0


def collect() -> dict[str, Any]:
    """Return all facts, JSON-ready; a part that could not be found out is `{"error": why}`."""
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "installation": _installation,
        "environment": _environment,
        "kernels": _kernels,
        "simulation": _simulation,
        "memory": _memory,
        "gpu": _gpu,
        "ray": _ray,
        "caches": _caches,
        "compiler": _compiler,
    }
    return {name: _guarded(part) for name, part in parts.items()}


def _guarded(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return part()
    except Exception as error:  # noqa: BLE001  whatever is broken here is what doctor is for
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def _installation() -> dict[str, Any]:
    folder = Path(str(dtk.__file__)).parent
    return {
        "version": dtk.__version__,
        "installed_version": _version(_DISTRIBUTION),
        "other_distribution": _version(_OTHER_DISTRIBUTION),
        "folders": [str(path) for path in dtk.__path__],
        "foreign_files": _foreign_files(folder),
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _foreign_files(folder: Path) -> list[str]:
    """Return modules in dtk's folder that its installation did not put there; none where it runs in place."""
    try:
        installed = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    ours = {Path(str(file.locate())).resolve() for file in installed if file.suffix == ".py"}
    if not any(folder.resolve() in file.parents for file in ours):
        return []
    found = (file.resolve() for file in folder.rglob("*.py"))
    return sorted(str(file) for file in found if file not in ours)


def _environment() -> dict[str, Any]:
    from dtk.repro.environment import capture_environment

    environment = capture_environment()
    environment["torch"].pop("config")
    return environment


def _kernels() -> dict[str, Any]:
    from dtk_kernels import status

    operations = status.implementations()
    return {
        "instruction_set": status.instruction_set(),
        "instruction_sets": status.instruction_sets(),
        "optional_instruction_sets": status.optional_instruction_sets(),
        "operations": {
            name: {one: asdict(state) for one, state in states.items()} for name, states in operations.items()
        },
    }


def _simulation() -> dict[str, Any]:
    from dtk.simulation import native

    return {"native": {"live": native.native_is_live(), "reason": native.why_no_native_module()}}


def _memory() -> dict[str, Any]:
    memory = psutil.virtual_memory()
    shared = Path("/dev/shm")
    return {
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "shared_bytes": shutil.disk_usage(shared).total if shared.is_dir() else None,
        "shared_free_bytes": shutil.disk_usage(shared).free if shared.is_dir() else None,
    }


def _gpu() -> dict[str, Any]:
    import torch

    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return {
        "cuda_build": torch.version.cuda,
        "available": torch.cuda.is_available(),
        "devices": [
            {
                "name": one.name,
                "memory_bytes": one.total_memory,
                "compute_capability": f"{one.major}.{one.minor}",
            }
            for one in properties
        ],
    }


def _ray() -> dict[str, Any]:
    import ray

    return {"version": ray.__version__}


def _caches() -> dict[str, Any]:
    from huggingface_hub import constants

    from dtk.models.cache import cache_dir

    triton = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    folders = {"dtk": cache_dir(), "hugging_face_hub": Path(constants.HF_HUB_CACHE), "triton": Path(triton)}
    return {name: _folder(path) for name, path in folders.items()}


def _folder(path: Path) -> dict[str, Any]:
    existing = next(one for one in (path, *path.absolute().parents) if one.exists())
    return {
        "path": str(path),
        "exists": path.exists(),
        "size_bytes": _size(path),
        "writable": existing.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        "free_bytes": shutil.disk_usage(existing).free,
    }


def _size(folder: Path) -> int | None:
    """Return the bytes of all files below, None if counting takes too long."""
    deadline = time.monotonic() + _SIZE_TIME_LIMIT_S
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            total += os.lstat(Path(root, name)).st_size
        if time.monotonic() > deadline:
            return None
    return total


def _compiler() -> dict[str, Any]:
    names = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    path = next((found for name in names if name and (found := shutil.which(name))), None)
    if path is None:
        return {"path": None, "version": None}
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    return {"path": path, "version": done.stdout.partition("\n")[0]}
