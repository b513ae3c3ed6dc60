"""One call that writes a timeline, in the format that the file's name asks for."""

import logging
from pathlib import Path

from dtk.errors import InputError
from dtk.timeline.files import write_atomically
from dtk.timeline.model import Timeline

__all__ = ["SUFFIXES", "save"]

SUFFIXES = (".json", ".json.gz", ".svg", ".png")

_LOG = logging.getLogger(__name__)


def save(timeline: Timeline, path: Path | str) -> tuple[str, ...]:
    """Write a timeline to a file: `.json` or `.json.gz` for Perfetto, `.svg` or `.png` as a picture.

    Args:
        timeline: What to write.
        path: Where; an existing file is replaced, in one piece.

    Returns:
        In plain words what was left out or merged to keep the file small, also logged as warnings; empty if
        everything is in it.

    Raises:
        InputError: If the name ends otherwise or the folder does not exist.
        RunFailedError: If the disk refuses.
    """
    path = Path(path)
    suffix = next((one for one in SUFFIXES if path.name.lower().endswith(one) and path.name != one), None)
    if suffix is None:
        hint = f"end the name in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise InputError("no format of that name", field="path", value=str(path), hint=hint)
    content, left_out = _encode(timeline, suffix)
    write_atomically(path, content)
    for one in left_out:
        _LOG.warning("%s: %s", path.name, one)
    return left_out


def _encode(timeline: Timeline, suffix: str) -> tuple[bytes, tuple[str, ...]]:
    # matplotlib and the other writers are imported for the format that is asked for only.
    if suffix == ".svg":
        from dtk.timeline.svg import draw_svg

        picture = draw_svg(timeline)
        return picture.text.encode(), picture.left_out
    if suffix == ".png":
        from dtk.timeline.png import draw_png

        return draw_png(timeline)
    from dtk.timeline.perfetto import encode_trace

    trace = encode_trace(timeline, compress=suffix == ".json.gz")
    return trace.content, trace.left_out
