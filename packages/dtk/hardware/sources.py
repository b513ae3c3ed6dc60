"""Where figures come from: every number of the hardware catalogue names a public source, or is refused.

A source is keyed by the path of the figure it stands for (`memory_bytes`, `peak_flop_per_s.fp16`), by the
field above it (`peak_flop_per_s`), or by `*` for all figures of an entry that have none of their own.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import pydantic
from pydantic import BaseModel, ConfigDict

from dtk.errors import InputError

__all__ = ["ALL_FIGURES", "Source", "Sourced"]

ALL_FIGURES = "*"


class Source(BaseModel):
    """Where one figure comes from.

    Attributes:
        title: The document, or a user's own words ("measured here").
        url: Its public address, if it has one.
        read_at: The public page that the figure was read from, where that is not the document itself.
        note: How the figure follows from the source, or which of two that disagree was taken, and why.
        estimate: Whether the figure is a guess of ours that the source only makes plausible.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = pydantic.Field(min_length=1)
    url: str | None = None
    read_at: str | None = None
    note: str = ""
    estimate: bool = False

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"title": value} if isinstance(value, str) else value


class Sourced(BaseModel):
    """An entry of the catalogue, whose figures all have a source.

    Attributes:
        name: What users type; case, spaces, `-` and `_` do not matter.
        aliases: Other names for it.
        note: What a reader of its figures must know.
        sources: The source of each figure, by the figure's path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str]

    name: str = pydantic.Field(pattern=r"[A-Za-z0-9]")
    aliases: tuple[str, ...] = ()
    note: str = ""
    sources: dict[str, Source] = {}

    def figures(self) -> Iterator[tuple[str, float]]:
        """Yield path and value, in base units, of each number in the entry."""
        yield from _numbers(self.model_dump(exclude={"sources"}), "")

    def source(self, path: str) -> Source:
        """Return the source of the figure at `path`.

        Raises:
            KeyError: If it has none; a validated entry has one for each of `figures`.
        """
        for key in (path, path.partition(".")[0], ALL_FIGURES):
            if key in self.sources:
                return self.sources[key]
        raise KeyError(path)

    @pydantic.model_validator(mode="after")
    def _every_figure_has_a_source(self) -> "Sourced":
        paths = [path for path, _ in self.figures()]
        known = {ALL_FIGURES, *paths, *(path.partition(".")[0] for path in paths)}
        for key in self.sources:
            if key not in known:
                raise InputError(f"the sources of {self.name} name {key!r}, which is no figure of it")
        for path in paths:
            try:
                self.source(path)
            except KeyError:
                hint = 'name it under sources; \'"*" = "measured here"\' stands for all figures of an entry'
                raise InputError(f"{path} of {self.name} has no source", hint=hint) from None
        return self


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a dumped model; of lists (which chips share a NIC) only that they are there."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}" if path else key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value
