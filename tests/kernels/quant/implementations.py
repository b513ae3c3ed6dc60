"""The implementations of the quantisers that the tests run."""

import pytest

from dtk_kernels.status import implementations

__all__ = ["written"]


def written(operation: str) -> list[object]:
    """Return "reference", and "native" where it is written, as parameters."""
    native = implementations()[operation]["native"]
    marked = pytest.param("native", marks=pytest.mark.native)
    return ["reference"] if native.reason == "not written" else ["reference", marked]
