"""The implementations that the tests of every operation run, and how close they must come to the oracle."""

import pytest

__all__ = ["BOTH", "DIRECT", "EVERYWHERE", "SUM_TOLERANCE"]

_NATIVE = pytest.param("native", marks=pytest.mark.native)

# Named implementations that run on a CPU.
DIRECT = ["reference", _NATIVE]
# The same and the public default, which goes through torch's dispatcher.
BOTH = ["reference", _NATIVE, pytest.param(None, id="dispatched")]
# The first and Triton's interpreter, for tests that compute little. It warns, through numpy, of what is
# meant: overflow to infinity in float16, say.
EVERYWHERE = [
    *DIRECT,
    pytest.param("triton", marks=[pytest.mark.interp, pytest.mark.filterwarnings("ignore::RuntimeWarning")]),
]

# Sums of up to a few thousand float32 terms of order one, against float64.
SUM_TOLERANCE = {"rtol": 3e-5, "atol": 3e-5}
