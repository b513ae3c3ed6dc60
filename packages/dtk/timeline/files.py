"""Writing a file so that a reader sees the old one or the new one in full."""

import os
import tempfile
from pathlib import Path

from dtk.errors import InputError, RunFailedError

__all__ = ["write_atomically"]


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path`.

    Raises:
        InputError: If the folder does not exist.
        RunFailedError: If the disk refuses.
    """
    if not path.parent.is_dir():
        raise InputError("the folder does not exist", field="path", value=str(path))
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RunFailedError(f"cannot write {path}: {error.strerror or error}") from error
