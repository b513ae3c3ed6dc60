"""What a run leaves behind: its configuration, and one result a claim; both go to disk as JSON."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import pydantic

from dtk.repro.claim import Claim
from dtk.repro.observed import Plot
from dtk.repro.tolerance import Band
from dtk.repro.values import MAX_SEED, MAX_THREADS, Basis, Status, finite_or_none

__all__ = ["ClaimResult", "Failure", "RunConfig", "count_statuses", "result_row"]


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class RunConfig(_Model):
    """Everything that decides a run's results, apart from the machine.

    Attributes:
        claims: The claims as they were when the run began, in full.
        references: Per paper, the environment that the expected values were set on.
        seed: Seed of all random choices.
        threads: CPU threads in all.
        source_hash: Hash of dtk's own files, so that results of other code are not taken for this code's.
    """

    claims: tuple[Claim, ...] = pydantic.Field(min_length=1)
    references: dict[str, dict[str, str]] = {}
    seed: int = pydantic.Field(ge=0, le=MAX_SEED)
    threads: int = pydantic.Field(ge=1, le=MAX_THREADS)
    source_hash: str

    @property
    def hash(self) -> str:
        """Hash of the whole configuration, 64 hexadecimal digits."""
        return _hash(self.model_dump(mode="json"))

    def claim_hash(self, claim: Claim) -> str:
        """Hash of what one claim's result depends on; other claims of the run do not count."""
        settings = {"seed": self.seed, "threads": self.threads, "source": self.source_hash}
        return _hash({"claim": claim.model_dump(mode="json"), **settings})


class Failure(_Model):
    """An error that kept a check from giving a value.

    Attributes:
        message: One line.
        traceback: Where it happened.
        kind: `check` for an error in the check, `run` if the run itself failed (a download, a disk).
    """

    message: str
    traceback: str
    kind: Literal["check", "run"]


class ClaimResult(_Model):
    """One line of `results.jsonl`.

    Attributes:
        id: The claim.
        config_hash: `RunConfig.claim_hash` of the run that made it.
        status: `pass`, `fail` or `not-testable`.
        basis: What `observed` rests on; `published` where nothing was observed.
        observed: The figure or figures; None where there are none, or in place of NaN and infinity.
        bands: The band of each figure by name, an unnamed one under the empty name.
        reason: Why it failed or is not testable.
        failure: The error, if one kept the check from giving a value.
        seconds: Wall time of the check.
        finished_utc: ISO 8601 time.
        details: What the check had to say.
        plots: What to draw.
    """

    id: str
    config_hash: str
    status: Status
    basis: Basis
    observed: Any = None
    bands: dict[str, Band | None] = {}
    reason: str | None = None
    failure: Failure | None = None
    seconds: float
    finished_utc: str
    details: dict[str, Any] = {}
    plots: tuple[Plot, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether a resumed run keeps it: judged, rather than broken off by an error or not testable then."""
        return self.status != "not-testable" and self.failure is None

    def to_json(self) -> str:
        """Return one line of strict JSON; NaN and infinity become null."""
        return json.dumps(finite_or_none(self.model_dump(mode="python")), allow_nan=False, default=str)


def count_statuses(results: Iterable[ClaimResult]) -> dict[Status, int]:
    """Count results by status, each status being there."""
    counts = Counter(result.status for result in results)
    return {"pass": counts["pass"], "fail": counts["fail"], "not-testable": counts["not-testable"]}


def result_row(claim: Claim, result: ClaimResult) -> dict[str, Any]:
    """Return one claim with its result as `--json` and scripts see it."""
    bands = {name: None if band is None else band._asdict() for name, band in result.bands.items()}
    row = {
        "id": claim.id,
        "paper": claim.paper,
        "title": claim.title,
        "where": claim.where,
        "status": result.status,
        "basis": result.basis,
        "paper_value": claim.published.value,
        "paper_source": claim.published.source,
        "expected": claim.expected.value,
        "scale_rule": claim.expected.scale_rule,
        "tolerance": claim.expected.tolerance.kind,
        "band": bands.get("", bands),
        "observed": result.observed,
        "unit": claim.unit,
        "reason": result.reason,
        "error": result.failure.message if result.failure else None,
        "seconds": round(result.seconds, 3),
        "details": result.details,
    }
    checked: dict[str, Any] = json.loads(json.dumps(finite_or_none(row), default=str))
    return checked


def _hash(settings: Mapping[str, Any]) -> str:
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
