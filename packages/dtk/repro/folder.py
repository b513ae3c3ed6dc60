"""The folder of one run: manifest, append-only results, report. Survives a kill at any moment.

`manifest.json` and `report.html` are replaced atomically. `results.jsonl` only grows: a line is flushed and
synced before the next claim starts, and half a line left by a kill is cut off when the run is resumed.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock
import pydantic

from dtk.errors import InputError, RunFailedError
from dtk.repro.manifest import Invocation, Manifest, describe_problem
from dtk.repro.result import ClaimResult, RunConfig

__all__ = ["RunFolder", "find_run", "make_folder", "utc_now", "write_atomically"]

_MANIFEST = "manifest.json"
_RESULTS = "results.jsonl"

_START_AFRESH = "put the file right, or start a fresh run: 'dtk repro run'"

_logger = logging.getLogger(__name__)


class RunFolder:
    """A run's folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._damaged_lines = 0

    @classmethod
    def create(
        cls, out: Path, config: RunConfig, argv: tuple[str, ...], environment: dict[str, Any]
    ) -> "RunFolder":
        """Make `out/<utc>-<hash>/` with its manifest.

        Raises:
            InputError: If the folder cannot be made there.
        """
        started = datetime.now(UTC)
        stem = f"{started:%Y%m%dT%H%M%SZ}-{config.hash[:8]}"
        path = _make_folder(out, stem)
        folder = cls(path)
        invocation = Invocation(
            started_utc=started.isoformat(timespec="seconds"), argv=argv, environment=environment
        )
        folder.write_manifest(
            Manifest(run_id=path.name, config_hash=config.hash, config=config, invocations=(invocation,))
        )
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run.

        Raises:
            InputError: If there is no readable manifest.
        """
        folder = cls(path)
        folder.manifest()
        return folder

    @property
    def report_path(self) -> Path:
        """Where the report is, or will be."""
        return self.path / "report.html"

    def manifest(self) -> Manifest:
        """Read the manifest.

        Raises:
            InputError: If it is missing or not one of ours.
        """
        file = self.path / _MANIFEST
        if not file.is_file():
            hint = "give a folder that 'dtk repro run' made, for example runs/20261130T120000Z-0123abcd"
            raise InputError("not the folder of a run", field="RUN_DIR", value=str(self.path), hint=hint)
        try:
            return Manifest.model_validate_json(file.read_bytes())
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}", hint="allow to read it") from error
        except pydantic.ValidationError as error:
            raise InputError(
                f"{file} is damaged: {describe_problem(error)}", field="RUN_DIR", hint=_START_AFRESH
            ) from error

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        write_atomically(self.path / _MANIFEST, manifest.model_dump_json(indent=2) + "\n")

    def add_invocation(self, config: RunConfig, argv: tuple[str, ...], environment: dict[str, Any]) -> None:
        """Note in the manifest that the run was resumed, perhaps by other code (`config.source_hash`)."""
        manifest = self.manifest()
        invocation = Invocation(started_utc=utc_now(), argv=argv, environment=environment)
        changes = {
            "config": config,
            "config_hash": config.hash,
            "invocations": (*manifest.invocations, invocation),
        }
        self.write_manifest(manifest.model_copy(update=changes))

    def results(self, config: RunConfig) -> dict[str, ClaimResult]:
        """Read the results that belong to `config`, by claim id and in the order of its claims.

        Of several lines for a claim the last one counts; lines that other settings or other code made do not.
        Damaged lines are skipped with a warning, so that their claims run again.

        Raises:
            InputError: If the file cannot be read.
        """
        latest: dict[str, ClaimResult] = {}
        damaged = []
        for number, line in enumerate(self._whole_lines(), start=1):
            try:
                result = ClaimResult.model_validate_json(line)
            except pydantic.ValidationError:
                damaged.append(number)
            else:
                latest[result.id] = result
        self._warn_of_damage(damaged)
        return {
            claim.id: latest[claim.id]
            for claim in config.claims
            if claim.id in latest and latest[claim.id].config_hash == config.claim_hash(claim)
        }

    def append(self, result: ClaimResult) -> None:
        """Add a result and wait until it is on the disk."""
        file = self.path / _RESULTS
        try:
            with file.open("ab") as stream:
                stream.write(result.to_json().encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise RunFailedError(f"cannot write {file}: {error.strerror or error}") from error

    def _warn_of_damage(self, numbers: Sequence[int]) -> None:
        """Warn of damaged lines, once for the same ones."""
        if len(numbers) > self._damaged_lines:
            lines = f"{len(numbers)} damaged line{'s' if len(numbers) > 1 else ''}"
            first = f"{'the first is' if len(numbers) > 1 else 'it is'} line {numbers[0]}"
            text = "%s: %s skipped (%s); a resumed run checks their claims again"
            _logger.warning(text, self.path / _RESULTS, lines, first)
        self._damaged_lines = len(numbers)

    def _whole_lines(self) -> list[bytes]:
        file = self.path / _RESULTS
        if not file.exists():
            return []
        if not file.is_file():
            raise InputError(f"{file} is not a file", field="RUN_DIR", hint=_START_AFRESH)
        try:
            return file.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}", hint="allow to read it") from error

    def _cut_half_line(self) -> None:
        """Drop an unfinished last line, so that the next one starts on its own."""
        file = self.path / _RESULTS
        whole_bytes = sum(len(line) + 1 for line in self._whole_lines())
        if not file.exists() or file.stat().st_size == whole_bytes:
            return
        try:
            with file.open("r+b") as stream:
                stream.truncate(whole_bytes)
                os.fsync(stream.fileno())
        except OSError as error:
            raise RunFailedError(f"cannot write {file}: {error.strerror or error}") from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run for this process; a kill frees it.

        Raises:
            InputError: If another process is at it.
            RunFailedError: If the disk refuses.
        """
        file = self.path / ".lock"
        lock = filelock.FileLock(file)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise InputError(
                "another process is working on this run", field="--resume", value=str(self.path)
            ) from error
        except (OSError, NotImplementedError) as error:
            problem = "it is a folder" if file.is_dir() else str(getattr(error, "strerror", None) or error)
            hint = f"remove {file}, or start a fresh run: 'dtk repro run'"
            raise RunFailedError(f"cannot lock {file}: {problem}", hint=hint) from error
        try:
            self._cut_half_line()
            yield
        finally:
            lock.release()


def find_run(text: str, out: Path) -> RunFolder:
    """Open the run that a user named: a folder, or `latest` for the newest one below `out`.

    Raises:
        InputError: If there is none.
    """
    if text != "latest":
        return RunFolder.open(Path(text))
    manifests = sorted(
        out.glob(f"*/{_MANIFEST}"), key=lambda file: (file.parent.name[:16], file.stat().st_mtime_ns)
    )
    if not manifests:
        raise InputError(
            "there is no run to take up", field="--out", value=str(out), hint="start one: 'dtk repro run'"
        )
    return RunFolder.open(manifests[-1].parent)


def utc_now() -> str:
    """Return the time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def make_folder(path: Path) -> None:
    """Make a folder inside a run's folder, unless it is there.

    Raises:
        RunFailedError: If the disk refuses, or a file has the name.
    """
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise RunFailedError(f"cannot write {path}: it is a file, and should be a folder") from error
    except OSError as error:
        raise RunFailedError(f"cannot write {path}: {error.strerror or error}") from error


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers, and whoever comes after a kill, see the old text or the new one in full.

    Raises:
        RunFailedError: If the disk refuses.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RunFailedError(f"cannot write {path}: {error.strerror or error}") from error


def _make_folder(out: Path, stem: str) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for attempt in range(100):
            path = out / (f"{stem}-{attempt}" if attempt else stem)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise InputError(
            f"cannot make the folder: {error.strerror}", field="--out", value=str(out)
        ) from error
    raise InputError("a hundred runs started in the same second", field="--out", value=str(out))
