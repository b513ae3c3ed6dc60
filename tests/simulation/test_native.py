"""What happens where the compiled event core is missing."""

import logging
import sys

import pytest

from dtk.simulation import native
from dtk.simulation.engine import start_times
from dtk.simulation.graph import TaskGraph

GRAPH = TaskGraph.of([2, 3], [(0, 1)])


@pytest.fixture(autouse=True)
def _without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the compiled module look missing."""
    monkeypatch.setitem(sys.modules, "dtk._native", None)
    monkeypatch.delenv("DTK_REQUIRE_NATIVE", raising=False)
    monkeypatch.setattr(native, "_load", native._load.__wrapped__)
    native.warn_of_oracle.cache_clear()


def test_python_steps_in_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    assert not native.native_is_live()
    with caplog.at_level(logging.WARNING, "dtk"):
        assert start_times(GRAPH).tolist() == start_times(GRAPH).tolist() == [0, 2]
    assert len(caplog.records) == 1
    assert "the compiled module is not installed" in caplog.text


def test_asking_for_it_is_an_error() -> None:
    with pytest.raises(ImportError, match=r"^the compiled module is not installed"):
        start_times(GRAPH, engine="native")


def test_requiring_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTK_REQUIRE_NATIVE", "1")
    with pytest.raises(ImportError, match=r"^DTK_REQUIRE_NATIVE is 1, but the compiled module is"):
        start_times(GRAPH)
    assert start_times(GRAPH, engine="python").tolist() == [0, 2]
