"""Limits that are measured in no time: the tests judge no speed."""

import pytest

from dtk.hardware import measure

__all__: list[str] = []


@pytest.fixture
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_MATRIX_SIZE", 16)
    monkeypatch.setattr(measure, "_MULTIPLY_ADDS", 1)
    monkeypatch.setattr(measure, "_USUAL_CACHE_BYTES", 2**14)
    monkeypatch.setattr(measure, "last_level_cache_bytes", lambda: 2**14)
