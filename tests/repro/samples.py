"""Sample claims files, and `install`, which makes dtk see them instead of the shipped ones."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtk.repro.claim import Claim, Paper

__all__ = ["claim", "install", "paper", "parse", "write_paper"]


def claim(claim_id: str, check: str | None, *, expected: Any = 1, **fields: Any) -> dict[str, Any]:
    """Return a claim as a claims file would hold it; `fields` override the plain defaults."""
    tolerance = fields.pop("tolerance", {"kind": "exact"})
    plain = {
        "id": claim_id,
        "title": f"title of {claim_id}",
        "where": "table 1",
        "statement": "It holds.",
        "published": {"value": 1, "source": "table 1"},
        "expected": {"value": expected, "tolerance": tolerance, "scale_rule": "none"},
        "basis": "measured",
        "minutes": 0.01,
        "memory": "1MiB",
        "quick": True,
    }
    if check is not None:
        plain["check"] = f"sample.{check}"
    return plain | fields


def paper(*claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return a claims file's content."""
    head = {"schema": "dtk.claims/1", "paper": "sample", "title": "A sample", "citation": "none"}
    return head | {"reference": {"python": "2.7", "cores": "512"}, "claims": list(claims)}


def parse(*claims: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Return the claims as models."""
    return Paper.model_validate(paper(*claims)).claims


def write_paper(folder: Path, *claims: Mapping[str, Any]) -> Path:
    """Write `sample.toml` with these claims into `folder`, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    document = paper(*claims)
    lines = [f"{key} = {_toml(value)}" for key, value in document.items()]
    (folder / "sample.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def install(folder: Path, patch: Any) -> None:
    """Let dtk find the claims files of `folder`, and `sample` among the modules of checks.

    Args:
        folder: Where `write_paper` wrote.
        patch: `pytest.MonkeyPatch`, or anything with its `setattr` and `setitem`.
    """
    import dtk.repro.catalogue
    from tests.repro import sample_checks

    patch.setitem(sys.modules, "dtk.repro.checks.sample", sample_checks)
    patch.setattr(dtk.repro.catalogue, "shipped_claims_folder", lambda: folder)


def _toml(value: Any) -> str:
    """Write a value in TOML; JSON's strings, numbers and booleans are TOML's."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value)
