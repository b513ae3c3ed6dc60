from pathlib import Path

import pytest

from tests.real_model import smollm2

__all__ = ["cache_folder", "smollm2"]


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder that belongs to one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DTK_CACHE_DIR", str(folder))
    return folder
