"""The small types that claims, checks and results share: values, what a figure rests on, statuses."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import pydantic

__all__ = [
    "MAX_SEED",
    "MAX_THREADS",
    "Basis",
    "Model",
    "Scalar",
    "Status",
    "Value",
    "by_name",
    "finite_or_none",
    "format_bytes",
    "format_scalar",
    "format_value",
]

MAX_SEED: Final = 2**63 - 1
"""Largest seed of a run: seeds are what `torch.Generator.manual_seed` takes, and not negative."""

MAX_THREADS: Final = 4096
"""Most CPU threads of a run; more than any machine has cores."""

Basis = Literal["measured", "emulated", "simulated", "analytic", "published"]
"""What a figure rests on; `published` is the paper's own word."""

Status = Literal["pass", "fail", "not-testable"]


def _plain(value: Any) -> Any:
    """Turn a numpy or torch scalar into the Python number that it stands for."""
    return (
        value.item() if hasattr(value, "item") and not isinstance(value, (bool, int, float, str)) else value
    )


Scalar = Annotated[
    pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictFloat | pydantic.StrictStr,
    pydantic.BeforeValidator(_plain),
]
Value = Scalar | Mapping[str, Scalar]
"""One figure, or several named ones that are judged together."""


class Model(pydantic.BaseModel):
    """Base of what is read from claims files: frozen, no unknown keys, every number finite."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def by_name(value: Any) -> dict[str, Any]:
    """Return the figures by name; a single figure has the empty name."""
    return dict(value) if isinstance(value, Mapping) else {"": value}


def finite_or_none(value: Any) -> Any:
    """Replace every NaN and infinity inside a JSON-like value by None, for JSON knows neither."""
    if isinstance(value, Mapping):
        return {str(key): finite_or_none(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_none(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def format_bytes(size_bytes: float) -> str:
    """Write a size for people, in MiB or GiB."""
    gib = size_bytes / (1 << 30)
    return f"{gib:.3g} GiB" if gib >= 1 else f"{size_bytes / (1 << 20):.3g} MiB"


def format_scalar(value: Any) -> str:
    """Write one figure for people: four significant digits, whole numbers in full."""
    if value is None:
        return "not a number"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def format_value(value: Any, *, names: bool = False, unit: str = "") -> str:
    """Write a figure, or named figures in a row, for people; None is a dash."""
    if value is None:
        return "-"
    figures = by_name(value).items()
    texts = [
        f"{name}: {format_scalar(item)}" if names and name else format_scalar(item) for name, item in figures
    ]
    return (", " if names else " / ").join(texts) + (f" {unit}" if unit else "")
