"""Paths and names as users give them: the home folder expanded, and cut to a length that a line can show."""

from pathlib import Path

from dtk.errors import InputError

__all__ = ["expanded", "shortened"]

_LONGEST_SHOWN = 120


def shortened(text: str) -> str:
    """Return `text`, its middle left out where it is too long for a message."""
    half = _LONGEST_SHOWN // 2
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:half]}...{text[-half:]}"


def expanded(path: str | Path, *, field: str) -> Path:
    """Return the path with a leading `~` or `~user` replaced by that home folder.

    Raises:
        InputError: If there is no such user, or the user has no home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(
            "there is no such user's home folder",
            field=field,
            value=shortened(str(path)),
            hint="write the folder out, or put ./ before a name that begins with ~",
        ) from None
