"""Errors of the library in the words of the command line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from dtk.errors import InputError
from dtk.zeropp.config import ZeroppConfig

__all__ = ["naming_options", "option_of"]

_OPTIONS: Final[Mapping[str, str]] = {
    "num_ranks": "--pp",
    "num_chunks": "--chunks",
    "num_microbatches": "--micro-batches",
    "memory_limit": "--memory-chunks",
    "split": "--no-split",
}


def option_of(name: str) -> str:
    """Return the option that gives a setting or an argument of the library."""
    return _OPTIONS.get(name) or "--" + name.removesuffix("_s").replace("_", "-")


@contextmanager
def naming_options(file: str | None = None) -> Iterator[None]:
    """Let errors name options instead of arguments; all others are about the file, if there is one.

    Raises:
        InputError: What was raised, with another field.
    """
    try:
        yield
    except InputError as error:
        field = error.field or ""
        if file is not None and field == "schedule":
            field = file
        elif field in _OPTIONS or field in ZeroppConfig.model_fields:
            field = option_of(field)
        elif file is not None:
            field = f"{file}: {field}" if field else file
        raise InputError(error.message, field=field or None, value=error.value, hint=error.hint) from error
