"""How a public function finds the implementation that does its work.

An operation is one folder: `reference.py` (torch), `native.py` (C++), `triton_kernel.py` (GPU), each with a
function of the operation's name and the public function's arguments, imported on first use. The operation
is also declared to torch (namespace `dtk_kernels`), so that `torch.compile` and fake tensors know it; torch
picks by device: native on CPU (the reference where there is none; if because the compiled module is missing,
that is logged once), Triton on CUDA. None has a gradient: torch warns where one is asked for.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from dtk_kernels._memory import is_lazy, resolved
from dtk_kernels._native_calls import NativeCall
from dtk_kernels._native_module import native_module, warn_of_reference, why_no_native_module
from dtk_kernels._registry import IMPLEMENTATION_MODULES, OPERATION_PACKAGES

__all__ = ["Operation"]


class Operation:
    """One operation of the kernel layer, declared to torch when it is made.

    Args:
        name: The name of the public function and of the torch operator.
        schema: Arguments and results in torch's schema language.
        check: Raises ValueError or TypeError where the arguments' metadata do not fit.
        fake: Returns uninitialised results of the right shapes, dtypes and device.

    Attributes:
        name, check, fake: As given.
    """

    def __init__(
        self, name: str, *, schema: str, check: Callable[..., object], fake: Callable[..., Any]
    ) -> None:
        self.name = name
        self._paths = {
            implementation: f"{OPERATION_PACKAGES[name]}.{module}"
            for implementation, module in IMPLEMENTATION_MODULES.items()
        }
        package = sys.modules[OPERATION_PACKAGES[name]]  # which makes this object while it is imported
        self._has_native = any((Path(folder) / "native.py").exists() for folder in package.__path__)
        self.check = check
        self.fake = fake
        # The declaration lasts as long as this object does.
        self._library = torch.library.Library("dtk_kernels", "FRAGMENT")
        self._library.define(name + schema)
        self._library.impl(name, self._run_on_cpu, "CPU")
        self._library.impl(name, self._run_on_cuda, "CUDA")
        torch.library.register_fake(f"dtk_kernels::{name}", self._run_on_fake, lib=self._library)
        self._torch_operator = getattr(torch.ops.dtk_kernels, name).default

    def __call__(self, implementation: str | None, *args: Any, **kwargs: Any) -> Any:
        """Check the arguments and run the named implementation, or the best one for their device."""
        if implementation is None:
            try:
                return self._torch_operator(*args, **kwargs)
            except RuntimeError:
                self.check(*args, **kwargs)  # in our words, where torch complains of the wrong type
                raise
        function = self.load(implementation)
        self.check(*args, **kwargs)
        return _run(function, args, kwargs)

    def load(self, implementation: str) -> Callable[..., Any]:
        """Return the function of one implementation.

        Raises:
            ValueError: No implementation has that name.
            NotImplementedError: This operation or this installation lacks it; the text says why.
        """
        if implementation not in tuple(self._paths):  # which asks for no hash
            names = ", ".join(self._paths)
            raise ValueError(f"implementation must be one of {names} or None, got {implementation!r}")
        if implementation == "native" and native_module() is None:
            raise NotImplementedError(f"{self._missing(implementation)}: {why_no_native_module()}")
        try:
            function: Callable[..., Any] = getattr(_module(self._paths[implementation]), self.name)
        except ModuleNotFoundError as error:
            raise NotImplementedError(f"{self._missing(implementation)}: {error}") from error
        return function

    def prepare(self, *args: Any, **kwargs: Any) -> NativeCall[Any]:
        """Return the native implementation's call, ready to be made; the arguments must have been checked."""
        call: NativeCall[Any] = _run(_module(self._paths["native"]).prepare, args, kwargs)
        return call

    def _missing(self, implementation: str) -> str:
        return f"{self.name} has no {implementation} implementation here"

    # torch calls these three; torch.ops.dtk_kernels may be called directly, so each checks.

    def _run_on_cpu(self, *args: Any, **kwargs: Any) -> Any:
        self.check(*args, **kwargs)
        if self._has_native and native_module() is not None:
            return _run(self.load("native"), args, kwargs)
        if self._has_native:
            warn_of_reference()
        return _run(self.load("reference"), args, kwargs)

    def _run_on_cuda(self, *args: Any, **kwargs: Any) -> Any:
        self.check(*args, **kwargs)
        return _run(self.load("triton"), args, kwargs)

    def _run_on_fake(self, *args: Any, **kwargs: Any) -> Any:
        self.check(*args, **kwargs)
        return self.fake(*args, **kwargs)


def _module(path: str) -> ModuleType:
    # On every call, and importing again would take a microsecond.
    return sys.modules.get(path) or import_module(path)


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an implementation with tensors whose bytes are their values: kernels read memory as it is."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and is_lazy(value):
            break
    else:
        return function(*args, **kwargs)
    return function(*map(_resolved, args), **{name: _resolved(value) for name, value in kwargs.items()})


def _resolved(value: Any) -> Any:
    return resolved(value) if isinstance(value, torch.Tensor) else value
