"""Finding a transformer shape: in the catalogue, in a TOML or YAML file, or in a Hugging Face config.json."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from dtk.configuration import read_config_file
from dtk.errors import InputError
from dtk.workload.huggingface import shape_from_config_file
from dtk.workload.transformer import TransformerShape

__all__ = ["catalogue", "load_shape"]


@cache
def catalogue() -> Mapping[str, TransformerShape]:
    """Return the packaged shapes by name, in the order of their file."""
    text = resources.files("dtk.workload").joinpath("catalogue.toml").read_text(encoding="utf-8")
    shapes: dict[str, TransformerShape] = {}
    for group in tomllib.loads(text)["groups"]:
        shared = group.get("shared", {}) | {"source": group["source"]}
        for entry in group["models"]:
            shape = TransformerShape.from_values(shared | entry)
            if shape.name in shapes:
                raise InputError("stands twice in the catalogue", field="name", value=shape.name)
            shapes[shape.name] = shape
    return MappingProxyType(shapes)


def load_shape(model: str | Path) -> TransformerShape:
    """Return a shape by catalogue name, or from a file (.toml, .yaml, .json) or a folder with a config.json.

    Text that is no name in the catalogue counts as a path if it has a folder or one of these endings.

    Raises:
        InputError: If there is no such model or file, or it does not describe a shape.
    """
    known = catalogue()
    if isinstance(model, str) and model.lower() in known:
        return known[model.lower()]
    path = Path(model)
    endings = {".toml", ".yaml", ".yml", ".json"}
    bare = isinstance(model, str) and path.suffix not in endings and len(path.parts) < 2
    if model == "" or (bare and not _is_folder(path)):
        raise _unknown(str(model), list(known))
    if _is_folder(path):
        return shape_from_config_file(path / "config.json")
    if path.suffix == ".json":
        return shape_from_config_file(path)
    try:
        values = read_config_file(path)
    except InputError as error:
        raise InputError(error.message, field="model", value=error.value, hint=error.hint) from error
    try:
        return TransformerShape.from_values({"name": path.stem, "source": str(path)} | values)
    except InputError as error:
        field = f"model: {path}: {error.field}" if error.field else f"model: {path}"
        raise InputError(error.message, field=field, value=error.value, hint=error.hint) from error


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no name of a file is that long
        return False


def _unknown(model: str, names: list[str]) -> InputError:
    if model.lower() in {"list", "help", "?"}:
        return InputError("is no model", field="model", value=model, hint=f"one of {', '.join(names)}")
    near = difflib.get_close_matches(model.lower(), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(names)}"
    return InputError("unknown model", field="model", value=model, hint=f"{hint}; or give a file")
