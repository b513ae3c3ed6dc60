"""The folder that `--out` names: refused before the work if it cannot serve, filled without half files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic
import yaml

from dtk.errors import InputError

__all__ = ["prepare_folder", "write_json"]


def prepare_folder(folder: Path, settings: pydantic.BaseModel, command: str) -> None:
    """Make the folder and write the settings there, before the work whose results it is to keep.

    Raises:
        InputError: If that cannot be done, or the folder holds the results of an earlier run.
    """
    try:
        if folder.is_file():
            raise InputError(
                "cannot write there: it is a file, not a folder",
                field="--out",
                value=str(folder),
                hint="name a new folder",
            )
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "result.json").exists():
            raise InputError(
                "holds the results of an earlier run",
                field="--out",
                value=str(folder),
                hint="name a new folder",
            )
        text = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
        (folder / "config.yaml").write_text(f"# For --config of dtk {command}.\n{text}", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write there: {error.strerror}", field="--out", value=str(folder)) from error


def write_json(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write one file into the folder, in one piece or not at all."""
    temporary = folder / f".{name}.part"
    try:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)
