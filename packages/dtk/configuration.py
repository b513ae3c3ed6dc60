"""Layered configuration: packaged defaults, then a file, then `--set key=value`, then explicit flags."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml

from dtk.errors import InputError

__all__ = ["input_error", "load_config", "parse_assignment", "read_config_file", "validate"]

ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)


def load_config(
    model: type[ModelT],
    *,
    file: Path | None = None,
    assignments: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> ModelT:
    """Build `model` from its defaults, a file, `key=value` assignments and flags, the later ones winning.

    Flags whose value is None were not given and change nothing.

    Raises:
        InputError: For an unreadable file, an unknown key or a value that the model refuses.
    """
    values: dict[str, Any] = read_config_file(file) if file is not None else {}
    for assignment in assignments:
        path, value = parse_assignment(assignment)
        _assign(values, path, value, assignment)
    values.update({key: value for key, value in (flags or {}).items() if value is not None})
    return validate(model, values)


def read_config_file(file: Path) -> dict[str, Any]:
    """Read a TOML or YAML file (safe loaders) into a plain dictionary.

    Raises:
        InputError: If the file is missing, unreadable, of another kind, or does not hold a table.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the file: {error}", field="--config", value=str(file)) from error
    try:
        if file.suffix == ".toml":
            values: Any = tomllib.loads(text)
        elif file.suffix in {".yaml", ".yml"}:
            values = yaml.safe_load(text)
        else:
            raise InputError(
                "unknown kind of file", field="--config", value=str(file), hint="use .toml, .yaml or .yml"
            )
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        message = " ".join(str(error).split())
        raise InputError(f"not valid: {message}", field="--config", value=str(file)) from error
    if not isinstance(values, dict):
        raise InputError("must hold a table of keys and values", field="--config", value=str(file))
    return values


def parse_assignment(assignment: str) -> tuple[list[str], Any]:
    """Split `a.b=value` into its key path and its value, read as a TOML value where it is one, else as text.

    Raises:
        InputError: If there is no `=` or a part of the key is empty.
    """
    key, separator, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not separator or not all(path):
        raise InputError(
            "must be KEY=VALUE", field="--set", value=assignment, hint="for example block_size=32"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return path, value


def _assign(values: dict[str, Any], path: list[str], value: Any, assignment: str) -> None:
    table = values
    for part in path[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"{part} is a value, not a table", field="--set", value=assignment)
    table[path[-1]] = value


def validate(model: type[ModelT], values: Mapping[str, Any]) -> ModelT:
    """Build `model` from `values`; the first thing that pydantic refuses becomes one clear line.

    Raises:
        InputError: With the field's path, its value and what would be right.
    """
    try:
        return model.model_validate(dict(values))
    except pydantic.ValidationError as error:
        raise input_error(error, known_keys=list(model.model_fields)) from error


def input_error(error: pydantic.ValidationError, *, known_keys: Sequence[str] = ()) -> InputError:
    """Return the first complaint of pydantic as our error, with the field's path, value and hint."""
    first = error.errors(include_url=False)[0]
    # pydantic names the member of a union that it tried (`constrained-int`); a user has never heard of it.
    parts = [str(part) for part in first["loc"]]
    field = ".".join(part for part in parts if "-" not in part and "[" not in part) or None
    value = None if isinstance(first["input"], Mapping) else first["input"]
    if first["type"] == "extra_forbidden" and known_keys:
        return InputError("unknown key", field=field, hint=f"known keys: {', '.join(known_keys)}")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return InputError(cause.message, field=field, value=value, hint=cause.hint)
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
    return InputError(message[:1].lower() + message[1:], field=field, value=value)
