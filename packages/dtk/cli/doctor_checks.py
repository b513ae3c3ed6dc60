"""What `dtk doctor` makes of the facts: one check a function, each with one line and what to do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["CHECKS", "Check", "run_checks"]

_GIB: Final = 2**30


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: What was looked at.
        status: `ok`, `warn` (it works, worse than it could) or `fail` (something will not work).
        message: What was found.
        hint: What to do about it; empty if nothing.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    hint: str = ""


def run_checks(facts: dict[str, Any]) -> list[Check]:
    """Judge the facts; parts that could not be found out fail."""
    broken = [
        Check(name, "fail", part["error"], "this part does not work here")
        for name, part in facts.items()
        if "error" in part
    ]
    whole = {name: part for name, part in facts.items() if "error" not in part}
    checks = [check for part, judge in CHECKS if part in whole for check in judge(whole[part])]
    return broken + checks


def _installation(installation: dict[str, Any]) -> Iterator[Check]:
    other, foreign = installation["other_distribution"], installation["foreign_files"]
    if other:
        message = f"the unrelated package 'dtk' {other} of PyPI is installed into the same folder"
        yield Check("package", "fail", message, "pip uninstall dtk, then install dtk-llm again")
    elif foreign or len(installation["folders"]) != 1:
        message = f"the folder of dtk holds files that are not ours: {', '.join(foreign[:3])}"
        yield Check("package", "fail", message, "install dtk-llm in a fresh virtual environment")
    elif installation["installed_version"] not in {None, installation["version"]}:
        message = f"dtk {installation['version']} runs, {installation['installed_version']} is installed"
        yield Check("package", "warn", message, "PYTHONPATH or the working folder hides the installation")
    else:
        yield Check("package", "ok", f"dtk {installation['version']}, all files are ours")


def _native(kernels: dict[str, Any]) -> Iterator[Check]:
    states = [operation["native"] for operation in kernels["operations"].values()]
    live = sum(state["live"] for state in states)
    if live:
        sets = kernels["instruction_sets"]
        best = kernels["instruction_set"] in {sets[-1], *kernels["optional_instruction_sets"]}
        message = f"{live} of {len(states)} operations, instruction set {kernels['instruction_set']}"
        hint = "" if best else f"DTK_CPU_ISA keeps dtk from {sets[-1]}"
        yield Check("native kernels", "ok" if best else "warn", message, hint)
    else:
        reason = next(state["reason"] for state in states)
        yield Check("native kernels", "fail", f"none: {reason}", "build it: pip install . --force-reinstall")


def _simulation(simulation: dict[str, Any]) -> Iterator[Check]:
    state = simulation["native"]
    if state["live"]:
        yield Check("native simulator", "ok", "it is there")
    else:
        hint = "plain Python steps in, many times slower; build it: pip install . --force-reinstall"
        yield Check("native simulator", "warn", f"none: {state['reason']}", hint)


def _gpu(gpu: dict[str, Any]) -> Iterator[Check]:
    if gpu["available"]:
        names = ", ".join(device["name"] for device in gpu["devices"])
        yield Check("GPU", "ok", names)
    elif gpu["cuda_build"]:
        hint = "torch's CPU build is 3 GB smaller: install it from https://download.pytorch.org/whl/cpu"
        yield Check("GPU", "warn", f"none, but torch is a CUDA {gpu['cuda_build']} build", hint)
    else:
        yield Check("GPU", "ok", "none; everything runs on the CPU")


def _threads(environment: dict[str, Any]) -> Iterator[Check]:
    cores, threads = environment["cpu"]["available_cores"], environment["torch"]["threads"]
    if threads > cores:
        hint = "set OMP_NUM_THREADS to the cores, or use --threads"
        yield Check("threads", "warn", f"torch uses {threads} threads on {cores} cores", hint)
    else:
        yield Check("threads", "ok", f"torch uses {threads} of {cores} cores")


def _variables(environment: dict[str, Any]) -> Iterator[Check]:
    variables = environment["variables"]
    if variables.get("TRITON_INTERPRET") == "1":
        message = "TRITON_INTERPRET=1: Triton kernels run in its interpreter, thousands of times slower"
        yield Check("Triton", "warn", message, "unset it but for tests")
    elif any(name.startswith("TRITON_") for name in variables):
        named = ", ".join(f"{key}={value}" for key, value in variables.items() if key.startswith("TRITON_"))
        yield Check("Triton", "ok", f"set: {named}")
    else:
        yield Check("Triton", "ok", "no TRITON_ variable is set")


def _memory(memory: dict[str, Any]) -> Iterator[Check]:
    available = memory["available_bytes"] / _GIB
    text = f"{available:.1f} GiB free of {memory['total_bytes'] / _GIB:.1f} GiB"
    if available < 2:
        yield Check("memory", "warn", text, "small real models take 2 GiB")
    else:
        yield Check("memory", "ok", text)
    shared = memory["shared_bytes"]
    if shared is not None and shared < _GIB:
        text = f"{shared / _GIB:.2f} GiB of shared memory"
        yield Check("/dev/shm", "warn", text, "Ray starts slowly or not at all; docker run --shm-size 2g")
    elif shared is not None:
        yield Check("/dev/shm", "ok", f"{shared / _GIB:.1f} GiB of shared memory")


def _ray(ray: dict[str, Any]) -> Iterator[Check]:
    yield Check("Ray", "ok", f"{ray['version']} can be imported (it was not started)")


def _caches(caches: dict[str, Any]) -> Iterator[Check]:
    for name, folder in caches.items():
        if name == "dtk" and not folder["writable"]:
            message = f"{folder['path']} cannot be written"
            yield Check("cache", "fail", message, "set DTK_CACHE_DIR to a folder that can")
        elif name == "dtk":
            yield Check("cache", "ok", folder["path"])
        elif not folder["writable"]:
            yield Check(f"cache of {name}", "warn", f"{folder['path']} cannot be written")


def _compiler(compiler: dict[str, Any]) -> Iterator[Check]:
    if compiler["path"] is None:
        yield Check("C++ compiler", "warn", "none found", "needed to build dtk again, not to run it")
    else:
        yield Check("C++ compiler", "ok", compiler["version"])


CHECKS: Final[tuple[tuple[str, Callable[[dict[str, Any]], Iterator[Check]]], ...]] = (
    ("installation", _installation),
    ("kernels", _native),
    ("simulation", _simulation),
    ("gpu", _gpu),
    ("environment", _threads),
    ("environment", _variables),
    ("memory", _memory),
    ("ray", _ray),
    ("caches", _caches),
    ("compiler", _compiler),
)
"""Which part of the facts each check judges."""
