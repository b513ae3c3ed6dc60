"""A figure is there whole or not at all."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from dtk.scout.figures import save_figure


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Figure, path: Path, **_: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(OSError, match="No space left"):
        save_figure(Figure(), tmp_path, "plot")
    assert list(tmp_path.iterdir()) == []
