"""Why the model is far off on some published runs, from `misses.toml`."""

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import pydantic

__all__ = ["Miss", "find_miss", "misses"]


class Miss(pydantic.BaseModel):
    """What is known of rows that the model gets wrong.

    Attributes:
        sets: The judged sets.
        rows: Patterns of names of runs.
        kind: `table` where a row contradicts its neighbours in the same table, `left out` for an effect that
            the model does not have, `software` for other software or hardware than the constants stand for,
            `unexplained`.
        reason: In words.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    sets: tuple[str, ...]
    rows: tuple[str, ...]
    kind: Literal["table", "left out", "software", "unexplained"]
    reason: Annotated[str, pydantic.Field(min_length=1)]

    def covers(self, judged: str, run: str) -> bool:
        """Return whether it speaks of a run of a judged set."""
        return judged in self.sets and any(fnmatchcase(run, pattern) for pattern in self.rows)


@cache
def misses() -> tuple[Miss, ...]:
    """Return all that is known, in the order in which it counts."""
    text = (resources.files(__package__) / "misses.toml").read_text(encoding="utf-8")
    return tuple(Miss.model_validate(entry) for entry in tomllib.loads(text)["misses"])


def find_miss(judged: str, run: str) -> Miss | None:
    """Return what is known of a run of a judged set, if anything."""
    return next((miss for miss in misses() if miss.covers(judged, run)), None)
