"""The implementations that the tests of every operation run, and how close they must come to the oracle."""

import pytest

__all__ = ["BOTH", "DIRECT", "SUM_TOLERANCE"]

_NATIVE = pytest.param("native", marks=pytest.mark.native)

# Named implementations that run on a CPU.
DIRECT = ["reference", _NATIVE]
# The same and the public default, which goes through torch's dispatcher.
BOTH = ["reference", _NATIVE, pytest.param(None, id="dispatched")]

# Sums of up to a few thousand float32 terms of order one, against float64.
SUM_TOLERANCE = {"rtol": 3e-5, "atol": 3e-5}
