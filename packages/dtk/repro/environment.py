"""The machine and the versions that a run had, read without starting other programs but git.

No host name, user name or path is kept, and variables whose name smells of a secret are blanked.
"""

import hashlib
import os
import platform
import re
import subprocess
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import psutil

from dtk import __version__

__all__ = [
    "available_threads",
    "capture_environment",
    "environment_differences",
    "hash_sources",
    "package_folder",
]

_PACKAGES = (
    *("torch", "triton", "numpy", "scipy", "transformers", "safetensors", "gguf", "accelerate", "ray"),
    *("pydantic", "typer", "rich", "matplotlib", "jinja2"),
)
_CPU_FLAGS = (
    *("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16"),
    *("amx_tile", "amx_bf16", "amx_int8", "asimd", "bf16", "i8mm", "sve", "sve2"),
)
_THREAD_VARIABLES = re.compile(r"(OMP|GOMP|KMP|MKL|OPENBLAS|VECLIB|NUMEXPR|BLIS)_\w+|GOMP_CPU_AFFINITY")
_OWN_VARIABLES = re.compile(r"(DTK|TRITON)_\w+")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|(^|_)KEY(_|$)")


def package_folder(name: str) -> Path:
    """Return the folder that an installed package's files lie in."""
    return Path(str(resources.files(name)))


def available_threads() -> int:
    """Return the number of logical cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def capture_environment() -> dict[str, Any]:
    """Describe this machine, the software, and the variables that steer threads and kernels; JSON-ready."""
    return {
        "dtk": __version__,
        "git": _git_state(),
        "python": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "os": _os_name(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu(),
        "memory_bytes": psutil.virtual_memory().total,
        "torch": _torch(),
        "packages": _package_versions(),
        "variables": _variables(),
    }


def environment_differences(
    reference: dict[str, str], environment: dict[str, Any]
) -> list[tuple[str, str, str]]:
    """Compare a claims file's reference with an environment: (what, reference, here) for each difference.

    A version matches if it starts with the reference's parts: 3.11 stands for every 3.11.x.
    """
    torch = environment.get("torch") or {}
    here = {
        "python": environment.get("python"),
        "torch": torch.get("version"),
        "instruction set": torch.get("cpu_capability"),
        "cores": environment.get("cpu", {}).get("available_cores"),
    }
    differences = []
    for what, wanted in reference.items():
        got = str(here.get(what))
        if got != wanted and not got.startswith((f"{wanted}.", f"{wanted}+")):
            differences.append((what, wanted, got))
    return differences


def hash_sources() -> str:
    """Hash the files that dtk and dtk_kernels consist of, by name and content (about 10 ms)."""
    digest = hashlib.sha256()
    for root in (package_folder("dtk"), package_folder("dtk_kernels")):
        for file in sorted(root.rglob("*")):
            if file.suffix in {".py", ".so", ".toml", ".j2"} and "__pycache__" not in file.parts:
                digest.update(f"{root.name}/{file.relative_to(root).as_posix()}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _git_state() -> dict[str, Any] | None:
    """Return commit and dirty flag if dtk runs from a checkout of its own; not of a project that uses it."""
    package = package_folder("dtk").resolve()
    root = package.parents[1]
    if root / "packages" / "dtk" != package or not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        dirty = bool(_git(root, "status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": dirty}


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.strip()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()


def _cpu() -> dict[str, Any]:
    model, flags = platform.processor() or platform.machine(), set[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            if key in {"model name", "Model"}:
                model = value
            elif key in {"flags", "Features"}:
                flags.update(value.split())
                break
    except OSError:
        pass
    return {
        "model": model,
        "flags": [flag for flag in _CPU_FLAGS if flag in flags],
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": os.cpu_count(),
        "available_cores": available_threads(),
    }


def _torch() -> dict[str, Any]:
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "version": str(torch.__version__),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "cuda": torch.version.cuda,
        "gpus": gpus,
        "config": torch.__config__.show(),
    }


def _package_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _variables() -> dict[str, str]:
    chosen = {}
    for name, value in sorted(os.environ.items()):
        if _THREAD_VARIABLES.fullmatch(name) or _OWN_VARIABLES.fullmatch(name):
            chosen[name] = "(not kept)" if _SECRET.search(name) else value
    return chosen
