"""How a public function finds the implementation that does its work.

An operation is one folder: `reference.py` (torch), `native.py` (C++), `triton_kernel.py` (GPU), each with a
function of the operation's name and the public function's arguments. They are imported on first use only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["IMPLEMENTATIONS", "Operation"]

IMPLEMENTATIONS = ("reference", "native", "triton")
_MODULES = {"reference": "reference", "native": "native", "triton": "triton_kernel"}


@dataclass(frozen=True)
class Operation:
    """One operation of the kernel layer.

    Attributes:
        name: The name of the public function.
        package: Import path of the operation's folder.
        check: Raises ValueError or TypeError where the arguments' metadata do not fit.
    """

    name: str
    package: str
    check: Callable[..., object]

    def __call__(self, implementation: str | None, *args: Any, **kwargs: Any) -> Any:
        """Check the arguments and run the named implementation, or the best one for their device."""
        self.check(*args, **kwargs)
        return self.load(implementation or "reference")(*args, **kwargs)

    def load(self, implementation: str) -> Callable[..., Any]:
        """Return the function of one implementation.

        Raises:
            ValueError: No implementation has that name.
            NotImplementedError: This operation or this installation lacks it; the text says why.
        """
        if implementation not in _MODULES:
            raise ValueError(
                f"implementation must be one of {', '.join(_MODULES)} or None, got {implementation!r}"
            )
        try:
            module = import_module(f"{self.package}.{_MODULES[implementation]}")
        except ImportError as error:
            raise NotImplementedError(
                f"{self.name} has no {implementation} implementation here: {error}"
            ) from error
        function: Callable[..., Any] = getattr(module, self.name)
        return function
