"""The compiled event core `dtk._native`, or the reason why there is none."""

import logging
import os
from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from dtk.simulation.graph import DeadlockError, TaskGraph
from dtk_kernels.status import NativeModuleRequiredError

__all__ = ["native_is_live", "native_module", "start_times", "warn_of_oracle", "why_no_native_module"]

_logger = logging.getLogger("dtk")


@cache
def _load() -> tuple[ModuleType | None, str]:
    """Import the compiled module once; return it, or None and the reason."""
    try:
        return import_module("dtk._native"), ""
    except ModuleNotFoundError as error:
        return None, f"the compiled module is not installed ({error})"
    except ImportError as error:
        return None, f"the compiled module does not load ({error})"


def native_is_live() -> bool:
    """Whether the compiled module is there.

    Raises:
        NativeModuleRequiredError: It is missing and `DTK_REQUIRE_NATIVE` is 1.
    """
    module, reason = _load()
    if module is None and os.environ.get("DTK_REQUIRE_NATIVE") == "1":
        raise NativeModuleRequiredError(f"DTK_REQUIRE_NATIVE is 1, but {reason}")
    return module is not None


def native_module() -> ModuleType | None:
    """Return the compiled module, or None where it is missing."""
    return _load()[0]


def why_no_native_module() -> str:
    """Return why `native_is_live()` is False; empty if it is True."""
    return _load()[1]


@cache
def warn_of_oracle() -> None:
    """Say once in a process that plain Python stands in for the compiled module."""
    _logger.warning("simulations run in plain Python, many times slower: %s", why_no_native_module())


def start_times(graph: TaskGraph) -> NDArray[np.int64]:
    """Return the start of each task; see `dtk.simulation.engine.start_times`.

    Raises:
        NativeModuleRequiredError: The compiled module is missing.
    """
    module, reason = _load()
    if module is None:
        raise NativeModuleRequiredError(reason)
    starts: NDArray[np.int64] = module.start_times(
        graph.durations_ns,
        graph.resources,
        graph.positions,
        graph.predecessor_offsets,
        graph.predecessors,
        graph.first_ready,
    )
    unfinished = np.flatnonzero(starts < 0)
    if len(unfinished):
        raise DeadlockError(unfinished)
    return starts
