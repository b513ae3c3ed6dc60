"""`manifest.json`: what a run's folder says about the run, checked when it is read.

The environment is data for people; its parts may be missing, but those that are there have their types, so
that the report can be made from any manifest that reads.
"""

from typing import Annotated, Any, Literal

import pydantic

from dtk.repro.result import RunConfig

__all__ = ["Invocation", "Manifest", "describe_problem"]


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", strict=True)


class _Git(_Part):
    commit: str
    dirty: bool


class _Cpu(_Part):
    flags: list[str] = []


class _Torch(_Part):
    gpus: list[str] = []
    config: str = ""


class _Environment(_Part):
    """The parts of `capture_environment()` that the report takes apart; the others it prints as they are."""

    git: _Git | None = None
    cpu: _Cpu = _Cpu()
    memory_bytes: int = pydantic.Field(default=0, ge=0)
    torch: _Torch | None = None
    packages: dict[str, str | None] = {}
    variables: dict[str, str] = {}


def _check_environment(environment: dict[str, Any]) -> dict[str, Any]:
    try:
        _Environment.model_validate(environment)
    except pydantic.ValidationError as error:
        raise ValueError(describe_problem(error)) from error
    return environment


def describe_problem(error: pydantic.ValidationError) -> str:
    """Return the first problem in a few words, after the place where it is, if it has one."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else problem["msg"]


class Invocation(pydantic.BaseModel):
    """One start of the run: the first, or a resume.

    Attributes:
        started_utc: ISO 8601 time.
        argv: The command line.
        environment: `capture_environment()` of then.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    started_utc: str
    argv: tuple[str, ...]
    environment: Annotated[dict[str, Any], pydantic.AfterValidator(_check_environment)]


class Manifest(pydantic.BaseModel):
    """What `manifest.json` holds.

    Attributes:
        manifest_schema: Version of the file's shape (key `schema`).
        run_id: Name of the folder.
        config_hash: `RunConfig.hash`.
        config: The resolved configuration.
        invocations: The first start and every resume.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    manifest_schema: Literal["dtk.repro.manifest/1"] = pydantic.Field(
        default="dtk.repro.manifest/1", alias="schema"
    )
    run_id: str
    config_hash: str
    config: RunConfig
    invocations: Annotated[tuple[Invocation, ...], pydantic.Field(min_length=1)]
