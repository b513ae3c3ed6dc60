"""The one object that a command prints under `--json`; light enough to import when hardly anything is."""

import json
import math
from collections.abc import Mapping
from typing import Any

from dtk.errors import DtkError

__all__ = ["EXIT_INTERRUPTED", "JSON_SCHEMA", "json_document"]

EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C, as of a process that SIGINT has ended: 128 + 2."""

JSON_SCHEMA = "dtk.result/1"
"""Version of the object that `--json` prints; it changes when a key is renamed or removed."""

_KEYS_NAMED = 5


def json_document(
    command: str,
    status: str,
    *,
    basis: str | None = None,
    data: Mapping[str, Any] | None = None,
    warnings: list[str] | None = None,
    error: DtkError | None = None,
) -> str:
    """Return the one object that a command prints under `--json`.

    `status` is `ok`, `failed` (the command ran, and a check or claim did not hold) or `error`.
    NaN and infinity are not JSON: such figures become null, and a warning names their keys.
    """
    not_finite: list[str] = []
    finite = _finite(dict(data or {}), "", not_finite)
    document: dict[str, Any] = {
        "schema": JSON_SCHEMA,
        "command": command,
        "status": status,
        "basis": basis,
        "data": finite,
        "warnings": [*(warnings or []), *_warning(not_finite)],
    }
    if error is not None:
        document["error"] = error.to_dict()
    return json.dumps(document, indent=2, allow_nan=False)


def _finite(value: Any, key: str, not_finite: list[str]) -> Any:
    """Return `value` with null for each figure that JSON cannot hold, whose keys go to `not_finite`."""
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(key)
        return None
    if isinstance(value, Mapping):
        return {
            name: _finite(item, f"{key}.{name}" if key else str(name), not_finite)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_finite(item, f"{key}[{index}]", not_finite) for index, item in enumerate(value)]
    return value


def _warning(not_finite: list[str]) -> list[str]:
    if not not_finite:
        return []
    named = ", ".join(not_finite[:_KEYS_NAMED])
    more = len(not_finite) - _KEYS_NAMED
    rest = f" and {more} more" if more > 0 else ""
    return [f"null stands for NaN or infinity in {named}{rest}"]
