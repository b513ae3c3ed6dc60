"""Go through the claims of a run: skip what is done, check the rest one by one, keep every result at once."""

import time
import traceback
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from dtk.errors import DtkError, NotTestableError, RunFailedError
from dtk.repro.checks import Observed, RunContext, bind_check
from dtk.repro.claim import Claim
from dtk.repro.folder import RunFolder, utc_now
from dtk.repro.requirements import why_not_testable
from dtk.repro.result import ClaimResult, Failure, RunConfig, count_statuses
from dtk.repro.tolerance import judge

__all__ = ["ExitCode", "Listener", "Outcome", "exit_code", "run_claims"]


class ExitCode(IntEnum):
    """Exit codes of `dtk repro run`."""

    PASSED = 0
    CLAIM_OFF = 1
    NOTHING_TESTABLE = 3
    RUN_FAILED = 4
    INTERRUPTED = 130


class Listener(Protocol):
    """Hears how a run goes on."""

    def kept(self, claims: Sequence[Claim]) -> None:
        """These claims have final results from before and are not run again."""

    def started(self, claim: Claim, number: int, total: int) -> None:
        """The `number`-th of `total` claims begins."""

    def finished(self, claim: Claim, result: ClaimResult) -> None:
        """A claim has its result, which is on the disk."""


class Outcome(NamedTuple):
    """How a run went.

    Attributes:
        results: By claim id, for all claims that have one.
        interrupted: Whether the user broke it off.
        error: What kept it from writing its results or its report, if anything did.
    """

    results: dict[str, ClaimResult]
    interrupted: bool
    error: DtkError | None = None


def run_claims(folder: RunFolder, config: RunConfig, context: RunContext, listener: Listener) -> Outcome:
    """Check the claims of `config` that have no final result in `folder` yet.

    A check that raises is a failed claim, and the run goes on. An interrupt ends the run and loses nothing;
    so does a disk that refuses a result, which the outcome then names.
    """
    kept = {claim_id for claim_id, result in folder.results(config).items() if result.is_final}
    if kept:
        listener.kept([claim for claim in config.claims if claim.id in kept])
    interrupted, failed = False, None
    try:
        for number, claim in enumerate(config.claims, start=1):
            if claim.id in kept:
                continue
            listener.started(claim, number, len(config.claims))
            result = _check_claim(claim, config.claim_hash(claim), context)
            folder.append(result)
            listener.finished(claim, result)
    except KeyboardInterrupt:
        interrupted = True
    except RunFailedError as error:
        failed = error
    return Outcome(folder.results(config), interrupted, failed)


def exit_code(outcome: Outcome) -> ExitCode:
    """Return what the outcome means to a caller: interrupted before failed run before failed claim."""
    counts = count_statuses(outcome.results.values())
    if outcome.interrupted:
        return ExitCode.INTERRUPTED
    if outcome.error is not None:
        return ExitCode.RUN_FAILED
    if any(result.failure and result.failure.kind == "run" for result in outcome.results.values()):
        return ExitCode.RUN_FAILED
    if counts["fail"]:
        return ExitCode.CLAIM_OFF
    return ExitCode.PASSED if counts["pass"] else ExitCode.NOTHING_TESTABLE


def _check_claim(claim: Claim, config_hash: str, context: RunContext) -> ClaimResult:
    started = time.perf_counter()

    def result(**fields: object) -> ClaimResult:
        defaults = {
            "id": claim.id,
            "config_hash": config_hash,
            "basis": "published",
            "bands": claim.expected.bands(),
            "seconds": time.perf_counter() - started,
            "finished_utc": utc_now(),
        }
        return ClaimResult.model_validate({**defaults, **fields})

    reason = why_not_testable(claim)
    if reason is not None or claim.check is None:
        return result(status="not-testable", reason=reason)
    try:
        observed = bind_check(claim.check, claim.parameters)(context)
    except NotTestableError as error:
        return result(status="not-testable", reason=str(error))
    except Exception as error:  # noqa: BLE001  one broken check must not cost the results of the others
        failure = _failure(error)
        return result(status="fail", basis=claim.basis, reason=failure.message, failure=failure)
    return result(**_judged(claim, observed))


def _judged(claim: Claim, observed: Observed) -> dict[str, object]:
    verdict = judge(claim.expected.value, claim.expected.tolerance, observed.value)
    return {
        "status": "pass" if verdict.passed else "fail",
        "basis": observed.basis,
        "observed": observed.value,
        "reason": verdict.reason,
        "details": observed.details,
        "plots": observed.plots,
    }


def _failure(error: Exception) -> Failure:
    message = str(error) if isinstance(error, DtkError) else f"{type(error).__name__}: {error}"
    return Failure(
        message=" ".join(message.split()),
        traceback="".join(traceback.format_exception(error)),
        kind="run" if isinstance(error, RunFailedError) else "check",
    )
