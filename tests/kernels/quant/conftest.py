"""What the tests of the quantisers share."""

import importlib.util

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip interpreted kernels where triton is missing, or compiles: tensors here are on the CPU."""
    if item.get_closest_marker("interp") is None:
        return
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    from dtk_kernels.triton_support import interpreting

    if not interpreting():
        pytest.skip("Triton compiles in this process")
