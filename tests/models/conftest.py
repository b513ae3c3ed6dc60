from pathlib import Path

import pytest

from tests.models.gguf_wheel import TinyWheel, make_tiny_wheel
from tests.real_model import smollm2

__all__ = ["cache_folder", "local_index", "smollm2", "tiny_wheel"]


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder that belongs to one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DTK_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny_wheel(tmp_path_factory: pytest.TempPathFactory) -> TinyWheel:
    return make_tiny_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def local_index(tiny_wheel: TinyWheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip find the tiny wheel and nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tiny_wheel.folder))
