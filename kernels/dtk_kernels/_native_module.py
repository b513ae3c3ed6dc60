"""The compiled module, or the reason why there is none. Free of torch.

Environment: `DTK_CPU_ISA` names the instruction set to use (`generic`, `avx2`, `avx512`) instead of the best
of the first two; `DTK_REQUIRE_NATIVE=1` makes a missing module an error, where otherwise the references step
in.
"""

import logging
import os
from functools import cache
from importlib import import_module
from types import ModuleType

__all__ = [
    "InstructionSetError",
    "NativeModuleRequiredError",
    "native_module",
    "warn_of_reference",
    "why_no_native_module",
]

_logger = logging.getLogger("dtk_kernels")


class InstructionSetError(ValueError):
    """`DTK_CPU_ISA` names an instruction set that this build or this CPU does not have."""


class NativeModuleRequiredError(ImportError):
    """The compiled module is missing, and `DTK_REQUIRE_NATIVE` is 1."""


@cache
def _load() -> tuple[ModuleType | None, str]:
    """Import the compiled module once; return it, or None and the reason."""
    try:
        return import_module("dtk_kernels._native"), ""
    except ModuleNotFoundError as error:
        reason = f"the compiled module is not installed ({error})"
    except ImportError as error:
        if "DTK_CPU_ISA" in str(error):
            raise InstructionSetError(str(error)) from error
        reason = f"the compiled module does not load ({error})"
    return None, reason


def native_module() -> ModuleType | None:
    """Return `dtk_kernels._native`, or None where it is missing.

    Raises:
        NativeModuleRequiredError: It is missing and `DTK_REQUIRE_NATIVE` is 1.
        InstructionSetError: `DTK_CPU_ISA` names an instruction set that this build or this CPU does not have.
    """
    module, reason = _load()
    if module is None and os.environ.get("DTK_REQUIRE_NATIVE") == "1":
        raise NativeModuleRequiredError(f"DTK_REQUIRE_NATIVE is 1, but {reason}")
    return module


def why_no_native_module() -> str:
    """Return why `native_module()` is None; empty if it is there."""
    return _load()[1]


@cache
def warn_of_reference() -> None:
    """Say once in a process that the references stand in for the compiled module."""
    _logger.warning("kernels run as their slow references: %s", why_no_native_module())
