"""In a build with the address sanitizer (`nox -s sanitize`): it sees what kernels do with torch's memory."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import torch
from dtk_kernels import _native
from dtk_kernels._native_calls import view

values = [torch.zeros(2, 1, 40), torch.zeros(2, 1), torch.zeros(1, 40), torch.zeros(1)]
_native.merge_partials(*map(view, values))
print("before", flush=True)
values[0] = values[0].flatten()[:79].clone()  # one float less than the call below will read
address, dtype, size, *_ = view(values[0])
_native.merge_partials((address, dtype, size, (2, 1, 40), (40, 40, 1)), *map(view, values[1:]))
"""


@pytest.mark.native
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "__asan_init"), reason="not under the address sanitizer")
def test_a_kernel_that_reads_a_float_too_many_is_caught() -> None:
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )
    assert process.returncode != 0
    assert process.stdout.strip() == "before"
    assert "ERROR: AddressSanitizer" in process.stderr
