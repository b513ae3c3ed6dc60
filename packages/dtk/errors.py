"""The errors that dtk raises for its users.

Each carries the parts of one clear line (what is wrong, in which field, with which value, what would be
right) and the exit code of the command line. Programming mistakes inside dtk stay ordinary Python errors.
"""

from typing import Any, ClassVar

__all__ = ["CheckFailedError", "DtkError", "InputError", "NotTestableError", "RunFailedError"]


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
        got = f" (got {self.value!r})" if self.value is not None else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.message}{got}{hint}"

    def to_dict(self) -> dict[str, Any]:
        """Return the four parts as JSON-ready values (a value JSON does not know becomes its text)."""
        value = self.value
        if value is not None and not isinstance(value, (bool, int, float, str)):
            value = str(value)
        return {"message": self.message, "field": self.field, "value": value, "hint": self.hint}


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
