"""Runs a task graph with the native engine, or with the plain Python one where that is missing."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dtk.errors import InputError
from dtk.simulation import native, oracle
from dtk.simulation.graph import TaskGraph

__all__ = ["Engine", "choose_engine", "start_times"]

Engine = Literal["native", "python"]


def choose_engine(engine: Engine | None) -> Engine:
    """Return the engine asked for, or the best that is live; Python instead of native warns, once.

    Raises:
        InputError: There is no such engine.
        NativeModuleRequiredError: It is missing, and asked for or `DTK_REQUIRE_NATIVE` is 1.
    """
    if engine not in (None, *get_args(Engine)):
        raise InputError("must be native or python", field="engine", value=engine)
    if engine is not None:
        return engine
    if native.native_is_live():
        return "native"
    native.warn_of_oracle()
    return "python"


def start_times(graph: TaskGraph, *, engine: Engine | None = None) -> NDArray[np.int64]:
    """Return when each task starts, [N] int64; both engines say the same.

    A task starts when all its predecessors have ended and its resource takes it.

    Raises:
        DeadlockError: If some tasks can never start.
        OverflowError: If a time does not fit in 64 bits.
        ValueError: If two tasks share a position on a resource.
        NativeModuleRequiredError: It is missing, and asked for or `DTK_REQUIRE_NATIVE` is 1.
    """
    run = native.start_times if choose_engine(engine) == "native" else oracle.start_times
    return run(graph)
