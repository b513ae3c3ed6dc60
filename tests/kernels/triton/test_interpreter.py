"""What is known about Triton's interpreter, so that a change there is noticed here."""

import subprocess
import sys

import pytest
import torch

from tests.kernels.triton.canary import add, interpreter_problem

pytestmark = pytest.mark.interp


@pytest.fixture(autouse=True)
def _interpreted() -> None:
    from dtk_kernels.triton_support import interpreting

    if not interpreting():
        pytest.skip("Triton compiles in this process")


def test_canary() -> None:
    # If this fails, the value tests are skipped with the same text.
    assert interpreter_problem() is None


def test_float16_arithmetic_is_right() -> None:
    left, right = torch.linspace(-3, 3, 64).half(), torch.linspace(1, 2, 64).half()
    assert torch.equal(add(left, right), left + right)


@pytest.mark.xfail(
    reason="the interpreter adds the bit patterns of bfloat16 (triton-lang/triton #11584)", strict=True
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bfloat16_arithmetic_is_right() -> None:
    # When this passes, bfloat16 can join the dtypes of the value tests.
    left, right = torch.linspace(-3, 3, 64).bfloat16(), torch.linspace(1, 2, 64).bfloat16()
    assert torch.equal(add(left, right), left + right)


def test_without_interpreter_and_gpu_the_message_says_what_to_do() -> None:
    code = (
        "import torch\n"
        "from dtk_kernels.attention.merge_partials.triton_kernel import merge_partials\n"
        "try: merge_partials(torch.zeros(2, 3, 4), torch.zeros(2, 3))\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import os\nos.environ['TRITON_INTERPRET'] = '0'\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "needs tensors on a GPU, got device cpu" in done.stdout
    assert "TRITON_INTERPRET=1" in done.stdout
