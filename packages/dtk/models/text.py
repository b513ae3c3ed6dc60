"""Real text for prompts and small training runs, from what every Python carries; and a user's prompt file."""

import dataclasses
import hashlib
import platform
import stat
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

from dtk.errors import InputError, RunFailedError
from dtk.models.paths import expanded, shortened

__all__ = ["Text", "load_text", "read_prompt_file", "text_names"]

_LARGEST_PROMPT_BYTES = 64 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """A corpus.

    Attributes:
        name: What it was asked for by.
        source: What it is made of, with the version of Python that it came from.
        documents: (title, text) pairs in a fixed order.
        sha256: Digest of `text` in UTF-8, to tell whether two runs read the same.
    """

    name: str
    source: str
    documents: tuple[tuple[str, str], ...]
    sha256: str

    @property
    def text(self) -> str:
        """All documents, joined by blank lines."""
        return _join(self.documents)


def _join(documents: tuple[tuple[str, str], ...]) -> str:
    return "\n\n".join(text for _, text in documents)


def text_names() -> tuple[str, ...]:
    """Return the names that `load_text` knows."""
    return tuple(_READERS)


@cache
def load_text(name: str) -> Text:
    """Return a corpus by name; the same Python build gives the same text.

    `python-docs` is the language reference as `help()` shows it (0.46 MB of technical English in Python
    3.11), `python-source` the modules at the top of the standard library (several MB of code).

    Raises:
        InputError: If there is no such corpus.
        RunFailedError: If this Python was installed without it.
    """
    if name not in _READERS:
        raise InputError("unknown text", field="--text", value=name, hint=f"known: {', '.join(_READERS)}")
    documents, what = _READERS[name]()
    digest = hashlib.sha256(_join(documents).encode()).hexdigest()
    return Text(
        name=name, source=f"{what} of Python {platform.python_version()}", documents=documents, sha256=digest
    )


def _python_docs() -> tuple[tuple[tuple[str, str], ...], str]:
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise RunFailedError(
            "this Python has no pydoc_data", field="--text", value="python-docs", hint="use python-source"
        ) from error
    return tuple(sorted(topics.topics.items())), "documentation topics (pydoc_data)"


def _python_source() -> tuple[tuple[tuple[str, str], ...], str]:
    folder = Path(sysconfig.get_path("stdlib"))
    # `_sysconfigdata_*` and `sitecustomize` differ from build to build of one version.
    files = [
        file
        for file in sorted(folder.glob("*.py"))
        if not file.name.startswith(("_sysconfigdata", "sitecustom"))
    ]
    if not files:
        raise RunFailedError(
            f"no sources in {folder}", field="--text", value="python-source", hint="use python-docs"
        )
    return tuple((file.name, file.read_text(encoding="utf-8")) for file in files), "standard library sources"


_READERS: dict[str, Callable[[], tuple[tuple[tuple[str, str], ...], str]]] = {
    "python-docs": _python_docs,
    "python-source": _python_source,
}


def read_prompt_file(path: str | Path, *, field: str = "--prompt-file") -> str:
    """Return the text of a user's file.

    Raises:
        InputError: If it is missing, no regular file (standard input, a pipe or a device is none),
            unreadable, larger than 64 MiB, not UTF-8, or holds nothing but white space.
    """
    value = shortened(str(path))
    if not str(path):
        raise InputError("the path is empty", field=field, hint="give the path of a text file")
    if "\0" in str(path):
        raise InputError("is no path", field=field, value=value)
    try:
        text = _read_regular(expanded(path, field=field), field, value).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError("no such file", field=field, value=value) from None
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text: byte 0x{error.object[error.start]:02x} at offset {error.start}"
        raise InputError(
            reason, field=field, value=value, hint="convert it, for example with iconv"
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", field=field, value=value) from None
    if not text.strip():
        raise InputError("is empty", field=field, value=value, hint="give a file with text")
    return text


def _read_regular(file: Path, field: str, value: str) -> bytes:
    mode = file.stat().st_mode  # before it is opened: opening a pipe waits for a writer
    if stat.S_ISDIR(mode):
        raise InputError("is a folder, not a file", field=field, value=value)
    if not stat.S_ISREG(mode):
        hint = "write the text to a file first"
        raise InputError(
            "is not a regular file (a pipe, device or socket)", field=field, value=value, hint=hint
        )
    with file.open("rb") as stream:
        content = stream.read(_LARGEST_PROMPT_BYTES + 1)  # some files are longer than their size says
    if len(content) > _LARGEST_PROMPT_BYTES:
        most = _LARGEST_PROMPT_BYTES >> 20
        raise InputError(f"is larger than {most} MiB", field=field, value=value, hint="cut it")
    return content
