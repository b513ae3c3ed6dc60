"""What the kernel layer says of itself."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

import dtk_kernels
from dtk_kernels import status
from dtk_kernels._registry import IMPLEMENTATION_MODULES, OPERATION_PACKAGES

ROOT = Path(dtk_kernels.__file__).parent


def test_every_operation_folder_is_registered() -> None:
    folders = {
        f"dtk_kernels.{file.parent.parent.name}.{file.parent.name}" for file in ROOT.glob("*/*/reference.py")
    }
    assert folders == set(OPERATION_PACKAGES.values())


def test_every_registered_implementation_has_its_function() -> None:
    for operation, package in OPERATION_PACKAGES.items():
        for implementation, state in status.implementations()[operation].items():
            module = f"{package}.{IMPLEMENTATION_MODULES[implementation]}"
            if state.live:
                assert callable(getattr(importlib.import_module(module), operation))
            else:
                assert state.reason


@pytest.mark.parametrize("implementation", IMPLEMENTATION_MODULES)
@pytest.mark.parametrize("operation", OPERATION_PACKAGES)
def test_implementations_take_what_the_public_function_takes(operation: str, implementation: str) -> None:
    if implementation == "native" and not status.implementations()[operation]["native"].live:
        pytest.skip("the compiled module is missing")
    package = importlib.import_module(OPERATION_PACKAGES[operation])
    module = importlib.import_module(f"{package.__name__}.{IMPLEMENTATION_MODULES[implementation]}")
    # The quantisers resolve presets first; their check says what arrives then.
    resolves = operation in {"quantize", "dequantize", "fake_quantize"}
    function = package.OPERATION.check if resolves else getattr(package, operation)
    public = inspect.signature(function).parameters
    own = inspect.signature(getattr(module, operation)).parameters
    expected = [(p.name, p.kind, p.default) for p in public.values() if p.name != "implementation"]
    # Tuning options of one implementation may follow, if they have defaults.
    assert [(p.name, p.kind, p.default) for p in own.values() if p.name in public] == expected
    tuning = [p for p in own.values() if p.name not in public]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in tuning)


@pytest.mark.native
def test_native_is_live_for_every_operation() -> None:
    states = status.implementations()
    assert [operation for operation in states if not states[operation]["native"].live] == []


def test_triton_needs_a_device_or_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "_NVIDIA_DEVICES", ())
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert status.implementations()["block_score"]["triton"].reason == "this machine shows no NVIDIA GPU"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    expected = importlib.util.find_spec("triton") is not None
    assert status.implementations()["block_score"]["triton"].live == expected
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert status.implementations()["block_score"]["triton"].reason == "triton is not installed"


def test_an_unwritten_implementation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(status.IMPLEMENTATION_MODULES, "triton", "not_there")
    assert status.implementations()["gather_blocks"]["triton"].reason == "not written"
