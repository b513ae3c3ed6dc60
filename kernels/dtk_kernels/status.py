"""What of the kernel layer is live on this machine, and why the rest is not. Imports no torch unless it must.

`dtk doctor` prints it.
"""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from dtk_kernels._native_module import (
    InstructionSetError,
    NativeModuleRequiredError,
    native_module,
    why_no_native_module,
)
from dtk_kernels._registry import IMPLEMENTATION_MODULES, OPERATION_PACKAGES

__all__ = [
    "Implementation",
    "InstructionSetError",
    "NativeModuleRequiredError",
    "implementations",
    "instruction_set",
    "instruction_sets",
    "optional_instruction_sets",
]

_ROOT = Path(__file__).parent
_NVIDIA_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # the second is Windows' Linux subsystem


@dataclass(frozen=True)
class Implementation:
    """One implementation of one operation.

    Attributes:
        live: Whether it can run here.
        reason: Why it cannot; empty if it can.
    """

    live: bool
    reason: str = ""


def implementations() -> dict[str, dict[str, Implementation]]:
    """Return, for each operation, the state of "reference", "native" and "triton".

    Raises:
        NativeModuleRequiredError: The compiled module is missing and `DTK_REQUIRE_NATIVE` is 1.
        InstructionSetError: `DTK_CPU_ISA` names an instruction set that this build or this CPU does not have.
    """
    states = {"reference": Implementation(live=True), "native": _native(), "triton": _triton()}
    unwritten = Implementation(live=False, reason="not written")
    return {
        operation: {
            name: state if _source_exists(operation, name) else unwritten for name, state in states.items()
        }
        for operation in OPERATION_PACKAGES
    }


def instruction_set() -> str | None:
    """Return the instruction set of the native kernels in use, None without the compiled module."""
    module = native_module()
    return None if module is None else str(module.instruction_set())


def instruction_sets() -> list[str]:
    """Return the instruction sets that are chosen by themselves here, slowest first: the last one is used."""
    module = native_module()
    return [] if module is None else list(module.instruction_sets())


def optional_instruction_sets() -> list[str]:
    """Return those that are used here only when `DTK_CPU_ISA` names them."""
    module = native_module()
    return [] if module is None else list(module.optional_instruction_sets())


def _source_exists(operation: str, implementation: str) -> bool:
    folder = _ROOT.joinpath(*OPERATION_PACKAGES[operation].split(".")[1:])
    return (folder / f"{IMPLEMENTATION_MODULES[implementation]}.py").exists()


def _native() -> Implementation:
    module = native_module()
    return Implementation(live=module is not None, reason=why_no_native_module())


def _triton() -> Implementation:
    if importlib.util.find_spec("triton") is None:
        return Implementation(live=False, reason="triton is not installed")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return Implementation(live=True)
    if not any(device.exists() for device in _NVIDIA_DEVICES):
        return Implementation(live=False, reason="this machine shows no NVIDIA GPU")
    import torch

    if not torch.cuda.is_available():
        return Implementation(live=False, reason="torch cannot use a GPU here (a CPU build, or no driver)")
    return Implementation(live=True)
