"""Layered configuration: packaged defaults, then a file, then `--set key=value`, then explicit flags."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import pydantic
import yaml

from dtk.errors import InputError

__all__ = ["input_error", "load_config", "parse_assignment", "read_config_file", "validate"]

# Beside their own errors, both parsers let some of Python's pass: for the 13th month, for integers of
# thousands of digits (ValueError), for values that their explicit YAML tag does not fit (the others).
_PARSER_ERRORS = (ValueError, yaml.YAMLError, LookupError, AttributeError, TypeError, OverflowError)

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
    text = _read_text(file)
    try:
        if file.suffix == ".toml":
            values: Any = tomllib.loads(text)
        elif file.suffix in {".yaml", ".yml"}:
            values = _read_yaml(text)
        else:
            raise InputError(
                "unknown kind of file", field="--config", value=str(file), hint="use .toml, .yaml or .yml"
            )
    except InputError:
        raise
    except _PARSER_ERRORS as error:
        message = " ".join(str(error).split())
        raise InputError(f"not valid: {message}", field="--config", value=str(file)) from error
    except RecursionError as error:
        raise InputError("not valid: nested too deeply", field="--config", value=str(file)) from error
    if not isinstance(values, dict):
        raise InputError("must hold a table of keys and values", field="--config", value=str(file))
    return values


def _read_text(file: Path) -> str:
    try:
        # A pipe or a device might never end.
        if file.exists() and not file.is_file():
            kind = "a folder" if file.is_dir() else "not a regular file"
            raise InputError(
                f"cannot read the file: it is {kind}",
                field="--config",
                value=str(file),
                hint="give a .toml, .yaml or .yml file",
            )
        # Editors on Windows begin a file with a byte order mark.
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the file: {error}", field="--config", value=str(file)) from error


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML without aliases: a few lines of them stand for a value of any size."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read here; write the value out")
        return super().compose_node(parent, index)


def _read_yaml(text: str) -> Any:
    """Return what the document holds; an empty one is an empty table, as in TOML."""
    # Safe by its base class.
    values = yaml.load(text, Loader=_PlainLoader)
    return {} if values is None else values


def parse_assignment(assignment: str) -> tuple[list[str], Any]:
    """Split `a.b=value` into its key path and its value, read as a TOML value where it is one, else as text.

    Raises:
        InputError: If there is no `=`, a part of the key is empty, or the text has several lines.
    """
    key, separator, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not separator or not all(path):
        raise InputError(
            "must be KEY=VALUE", field="--set", value=assignment, hint="for example block_size=32"
        )
    # TOML would read a second line as a key of its own.
    if "\n" in assignment or "\r" in assignment:
        raise InputError("must be one line", field="--set", value=assignment, hint="write \\n in a string")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except ValueError as error:
        raise InputError(f"not valid: {error}", field="--set", value=assignment) from error
    except RecursionError as error:
        raise InputError("not valid: nested too deeply", field="--set", value=assignment) from error
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
    _refuse_booleans(model, values, "")
    try:
        return model.model_validate(dict(values))
    except pydantic.ValidationError as error:
        raise input_error(error, known_keys=list(model.model_fields)) from error


def _refuse_booleans(model: type[pydantic.BaseModel], values: Mapping[str, Any], prefix: str) -> None:
    """Refuse true and false where a field takes numbers: pydantic would read them as 1 and 0."""
    for name, field in model.model_fields.items():
        value = values.get(field.alias or name)
        kinds = set(_plain_types(field.annotation))
        items = value if isinstance(value, list | tuple) else [value]
        booleans = [item for item in items if isinstance(item, bool)]
        if booleans and kinds & {int, float} and not kinds & {bool, Any}:
            raise InputError("must be a number", field=prefix + name, value=booleans[0])
        if isinstance(value, Mapping):
            for kind in kinds:
                if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
                    _refuse_booleans(kind, value, f"{prefix}{name}.")


def _plain_types(annotation: Any) -> Iterator[Any]:
    """Yield the types in an annotation: `int` and `None` of `list[Annotated[int, ...]] | None`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield from (type(argument) for argument in arguments)
    elif arguments:
        for argument in arguments:
            yield from _plain_types(argument)
    else:
        yield annotation


def input_error(error: pydantic.ValidationError, *, known_keys: Sequence[str] = ()) -> InputError:
    """Return the first complaint of pydantic as our error, with the field's path, value and hint."""
    first = error.errors(include_url=False)[0]
    # pydantic names the member of a union that it tried (`constrained-int`); a user has never heard of it.
    parts = [str(part) for part in first["loc"]]
    field = ".".join(part for part in parts if "-" not in part and "[" not in part) or None
    value = None if isinstance(first["input"], Mapping) else first["input"]
    if first["type"] == "extra_forbidden" and known_keys:
        return InputError("unknown key", field=".".join(parts), hint=f"known keys: {', '.join(known_keys)}")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return InputError(cause.message, field=field, value=value, hint=cause.hint)
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
    return InputError(message[:1].lower() + message[1:], field=field, value=value)
