"""Every module of the kernel layer can be imported on a machine without a GPU; some without torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

IMPORT_ALL = """
import importlib, pkgutil, sys
import dtk_kernels
names = [module.name for module in pkgutil.walk_packages(dtk_kernels.__path__, "dtk_kernels.")]
for name in names:
    if not name.endswith("._native"):
        importlib.import_module(name)
import torch
assert not torch.cuda.is_initialized()
print(len(names))
"""

CHEAP = """
import sys
import dtk_kernels, dtk_kernels.status
dtk_kernels.status.implementations()
heavy = {"torch", "triton", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""


def run(script: str, **environment: str) -> str:
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | environment,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize("interpret", ["0", "1"])
def test_every_module_imports_without_a_gpu(interpret: str) -> None:
    assert int(run(IMPORT_ALL, TRITON_INTERPRET=interpret)) > 30


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="with a GPU, status asks torch about it")
def test_status_is_cheap() -> None:
    run(CHEAP, TRITON_INTERPRET="0")
