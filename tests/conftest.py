"""Fixtures that all tests share: markers that skip, and guards against state that leaks between tests."""

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator

import hypothesis
import pytest

# A busy machine is slow now and then; CI must be the same from run to run.
hypothesis.settings.register_profile("dtk", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dtk")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run, and say why; a required native module is never skipped."""
    modules = ("dtk_kernels._native", "dtk._native") if item.get_closest_marker("native") else ()
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        message = f"the compiled module {' and '.join(missing)} is missing"
        if os.environ.get("DTK_REQUIRE_NATIVE") == "1":
            pytest.fail(message)
        pytest.skip(message)
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no GPU")


@pytest.fixture(autouse=True)
def _restore_loggers() -> Iterator[None]:
    """Undo what the command line does to our loggers, which would hide records from `caplog`."""
    loggers = [logging.getLogger(name) for name in ("dtk", "dtk_kernels")]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate, logger.level = handlers, propagate, level


@pytest.fixture(autouse=True)
def _guard_torch_state() -> Iterator[None]:
    """Fail a test that leaves torch's threads, default type or gradient mode changed."""
    before = _torch_state()
    yield
    after = _torch_state()
    if before is not None:
        assert after == before, "the test left torch's threads, default dtype or gradient mode changed"


def _torch_state() -> tuple[object, ...] | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return None
    return torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
