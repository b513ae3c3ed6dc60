"""Writing a figure so that a reader never sees half of it."""

from pathlib import Path

from matplotlib.figure import Figure

__all__ = ["save_figure"]


def save_figure(figure: Figure, folder: Path, stem: str) -> list[Path]:
    """Write `stem.svg` and `stem.png` into `folder` and return their paths."""
    paths = [folder / f"{stem}.{kind}" for kind in ("svg", "png")]
    for path in paths:
        temporary = path.with_name(f".{path.name}.part")
        try:
            figure.savefig(temporary, format=path.suffix.removeprefix("."))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return paths
