"""What the tests of the GPU bench share."""

import pytest


@pytest.fixture
def _interpreted() -> None:
    """Skip where kernels are compiled: these tests run them on CPU tensors."""
    from dtk_kernels.triton_support import interpreting

    if not interpreting():
        pytest.skip("Triton compiles in this process")
