"""The folder where converted models live: complete or absent, whoever writes, whenever a process dies.

A model is prepared in a work folder beside its final place, under a lock file, and renamed into place once
its files are on the disk. A manifest with the size of every file tells a whole folder from a damaged one.
Left out: eviction; a user deletes folders by hand.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import platformdirs

from dtk.errors import DtkError, RunFailedError
from dtk.models.paths import expanded
from dtk.models.registry import ModelEntry

__all__ = [
    "MANIFEST",
    "cache_dir",
    "disk_errors",
    "exclusive",
    "install",
    "is_complete",
    "model_folder",
    "require_space",
    "work_folder",
    "write_manifest",
]

MANIFEST = "dtk-model.json"
_SCHEMA = "dtk.model/1"


def cache_dir() -> Path:
    """Return dtk's cache folder: `DTK_CACHE_DIR` if set, else the user's cache folder of this system.

    Raises:
        InputError: If `DTK_CACHE_DIR` begins with the home folder of a user who does not exist.
    """
    override = os.environ.get("DTK_CACHE_DIR")
    if not override:
        return platformdirs.user_cache_path("dtk")
    return expanded(override, field="DTK_CACHE_DIR").absolute()


def model_folder(entry: ModelEntry) -> Path:
    """Return where the converted model belongs, there or not."""
    return cache_dir() / "models" / f"{entry.name}-r{entry.revision}"


def work_folder(entry: ModelEntry) -> Path:
    """Return where the model is prepared; it exists only during that, or after a kill or a failure."""
    folder = model_folder(entry)
    return folder.with_name(f".{folder.name}.work")


def is_complete(folder: Path) -> bool:
    """Return whether `folder` holds every file of its manifest in its full size (a check of sizes only)."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files: Mapping[str, int] = manifest["files"]
        return bool(files) and all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest of the files in `folder`, with `facts` about where they come from."""
    files = {item.name: item.stat().st_size for item in sorted(folder.iterdir()) if item.is_file()}
    document = {"schema": _SCHEMA, **facts, "files": files}
    (folder / MANIFEST).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def install(prepared: Path, folder: Path) -> None:
    """Move a prepared folder to its final place in one step, its bytes on the disk first.

    A folder already there (a damaged one, or the caller would not be here) is moved aside and deleted.
    """
    for item in prepared.iterdir():
        item.chmod((prepared / MANIFEST).stat().st_mode)  # safetensors makes its files private
        with item.open("rb") as file:
            os.fsync(file.fileno())
    if folder.exists():
        discarded = prepared.with_name("discarded")
        shutil.rmtree(discarded, ignore_errors=True)
        folder.replace(discarded)
    prepared.replace(folder)


@contextmanager
def exclusive(entry: ModelEntry, on_wait: Callable[[str], None]) -> Iterator[Path]:
    """Hold the lock of one model and yield its work folder, which may hold what a killed run left.

    The work folder is deleted when the body succeeds and kept when it fails, so that a download survives.
    """
    folder, work = model_folder(entry), work_folder(entry)
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            on_wait(f"waiting for another process that prepares {entry.name}")
            lock.acquire()
        try:
            work.mkdir(exist_ok=True)
            yield work
            shutil.rmtree(work)
        finally:
            lock.release()


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn an operating system's error inside the block into one line that names the folder.

    Raises:
        RunFailedError: Disk full, quota, no permission, not a folder, and the like.
    """
    try:
        yield
    except DtkError:
        raise
    except Exception as error:
        code = _os_error_code(error)
        if code is None:
            raise
        where = getattr(error, "filename", None)
        culprit = f": {where}" if where and str(where) != str(folder) else ""
        raise RunFailedError(
            f"cannot write the model cache: {os.strerror(code)}{culprit}",
            field="DTK_CACHE_DIR",
            value=str(folder),
            hint=f"{_remedy(code)}, or set DTK_CACHE_DIR to another folder",
        ) from error


def _remedy(code: int) -> str:
    if code in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return "free some space"
    if code in {errno.EEXIST, errno.ENOTDIR, errno.EISDIR}:
        return "move what is in the way"
    return "make it writable"


def _os_error_code(error: Exception) -> int | None:
    """Return the errno behind an exception, None if the operating system is not the cause.

    safetensors and tokenizers, written in Rust, say it in the text of exceptions of their own.
    """
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuse early where the disk cannot hold what is to be written.

    Raises:
        RunFailedError: If less than `needed_bytes` are free.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise RunFailedError(
            f"needs {needed_bytes / 1e6:.0f} MB, {free / 1e6:.0f} MB are free",
            field="DTK_CACHE_DIR",
            value=str(folder),
            hint="free some space, or set DTK_CACHE_DIR to another folder",
        )
