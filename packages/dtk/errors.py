"""The errors that dtk raises for its users.

Each carries the parts of one clear line (what is wrong, in which field, with which value, what would be
right) and the exit code of the command line. Programming mistakes inside dtk stay ordinary Python errors.
"""

import math
import os
import reprlib
from typing import Any, ClassVar

__all__ = ["CheckFailedError", "DtkError", "InputError", "NotTestableError", "RunFailedError"]


_VALUE_CHARACTERS = 200
_TEXT_CHARACTERS = 2000


class _ShortRepr(reprlib.Repr):
    """Writes any value in a bounded number of steps: a shared sub-list may stand for billions of items."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = _VALUE_CHARACTERS

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write integers of more than 4300 digits.
        return super().repr_int(x, level) if x.bit_length() < 10_000 else f"<{x.bit_length()}-bit integer>"


def _short_repr(value: object) -> str:
    return _cut(_ShortRepr().repr(value), _VALUE_CHARACTERS)


def _cut(text: str, limit: int = _TEXT_CHARACTERS) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _json_value(value: object) -> bool | int | float | str | None:
    """Return what JSON can hold; everything else becomes text of bounded length."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() < 10_000:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, (str, os.PathLike)):
        return _cut(str(value))
    return _short_repr(value)


class DtkError(Exception):
    """Base class: something that the user should read as one line, without a traceback.

    Attributes:
        message: What is wrong, one sentence without a final full stop.
        field: The option, configuration key or argument at fault, if there is one.
        value: The offending value as the user gave it, if there is one.
        hint: What would be right, or what to do next.
    """

    exit_code: ClassVar[int] = 70

    def __init__(
        self, message: str, *, field: str | None = None, value: object = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = value
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        got = f" (got {_short_repr(self.value)})" if self.value is not None else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.message}{got}{hint}"

    def to_dict(self) -> dict[str, Any]:
        """Return the four parts as JSON-ready values.

        A value that JSON does not know, NaN and infinity among them, becomes its text; long text is cut.
        """
        return {
            "message": _cut(self.message),
            "field": None if self.field is None else _cut(self.field),
            "value": _json_value(self.value),
            "hint": None if self.hint is None else _cut(self.hint),
        }


class CheckFailedError(DtkError):
    """A check or claim did not hold, or nothing feasible was found (exit code 1)."""

    exit_code = 1


class InputError(DtkError, ValueError):
    """The user's input or usage is wrong (exit code 2)."""

    exit_code = 2


class NotTestableError(DtkError):
    """Nothing of what was asked for can be tested on this machine (exit code 3)."""

    exit_code = 3


class RunFailedError(DtkError):
    """The run itself failed: a rank, a peer, a disk, a download (exit code 4)."""

    exit_code = 4
