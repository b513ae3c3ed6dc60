"""Where the kernels run in this test process, and whether Triton's interpreter can be trusted at all.

By default (TRITON_INTERPRET=1 from tests/conftest.py) the value tests run in the interpreter, on CPU tensors.
With a GPU, `TRITON_INTERPRET=0 pytest tests/kernels/triton` runs the same tests compiled, and the `gpu` ones.
"""

import pytest
import torch

from tests.kernels.triton.canary import interpreter_problem


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Return the device on which kernels run here; skip where they cannot."""
    from dtk_kernels.triton_support import interpreting

    if not interpreting():
        if not torch.cuda.is_available():
            pytest.skip("Triton compiles here (TRITON_INTERPRET=0 or imported early), but there is no GPU")
        return torch.device("cuda")
    problem = interpreter_problem()
    if problem is not None:
        pytest.skip(problem)
    return torch.device("cpu")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip GPU tests in a process whose kernels are interpreted, which says nothing about the GPU."""
    if item.get_closest_marker("gpu"):
        from dtk_kernels.triton_support import interpreting

        if interpreting():
            pytest.skip(
                "kernels are interpreted in this process; set TRITON_INTERPRET=0 on a machine with a GPU"
            )
