"""The folder that `--out` names: refused before the work if it cannot serve, filled without half files."""

import json
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pydantic
import yaml

from dtk.cli.output import EXIT_INTERRUPTED, Output
from dtk.errors import DtkError, InputError, RunFailedError

__all__ = ["prepare_folder", "save_or_tell", "write_json"]


def prepare_folder(
    folder: Path, settings: pydantic.BaseModel, command: str, *, result: str = "result.json"
) -> None:
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
        if (folder / result).exists():
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


def save_or_tell(save: Callable[[], None], folder: Path, output: Output) -> tuple[str, int] | None:
    """Write the results; if that fails, tell, and return status and exit code.

    It must not keep the results from stdout.
    """
    try:
        save()
    except KeyboardInterrupt:
        problem, failure = f"interrupted while writing to {folder}", ("interrupted", EXIT_INTERRUPTED)
    except RunFailedError as error:
        problem, failure = str(error), ("failed", error.exit_code)
    except Exception as error:  # noqa: BLE001  whatever it is, it must not cost the figures
        problem = f"internal error while writing to {folder}, {type(error).__name__}: {error}"
        failure = "failed", DtkError.exit_code
        if output.verbose:
            traceback.print_exc()
    else:
        output.say(f"results in {folder}")
        return None
    output.stderr.print(f"dtk: {problem}", markup=False, soft_wrap=True)
    output.warnings.append(problem)
    return failure
