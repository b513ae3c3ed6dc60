"""The runner: statuses, errors, interrupts, resume, exit codes; and what claims of one run share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dtk.errors import RunFailedError
from dtk.repro import requirements
from dtk.repro.claim import Claim
from dtk.repro.context import RunContext
from dtk.repro.folder import RunFolder
from dtk.repro.result import ClaimResult, RunConfig, result_row
from dtk.repro.runner import ExitCode, Outcome, exit_code, run_claims
from tests.repro.samples import claim, install, parse


class Recorder:
    """A listener that keeps what it hears, and may interrupt."""

    def __init__(self, interrupt_at: str | None = None) -> None:
        self.heard: list[str] = []
        self.interrupt_at = interrupt_at

    def kept(self, claims: Sequence[Claim]) -> None:
        self.heard.append(f"kept {' '.join(item.id for item in claims)}")

    def started(self, claim: Claim, number: int, total: int) -> None:
        self.heard.append(f"{number}/{total} {claim.id}")
        if claim.id == self.interrupt_at:
            raise KeyboardInterrupt

    def finished(self, claim: Claim, result: ClaimResult) -> None:
        self.heard.append(f"{claim.id} {result.status}")


@pytest.fixture(autouse=True)
def _sample_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)


def start(out: Path, *claims: dict[str, Any], source_hash: str = "0") -> tuple[RunFolder, RunConfig]:
    config = RunConfig(claims=parse(*claims), seed=3, threads=1, source_hash=source_hash)
    return RunFolder.create(out, config, ("dtk",), {}), config


def run(folder: RunFolder, config: RunConfig, recorder: Recorder | None = None) -> Outcome:
    return run_claims(folder, config, RunContext(seed=3, threads=1), recorder or Recorder())


def run_one(out: Path, check: str | None, **fields: Any) -> ClaimResult:
    folder, config = start(out, claim("sample.one", check, **fields))
    return run(folder, config).results["sample.one"]


def test_a_claim_passes_and_says_what_it_rests_on(tmp_path: Path) -> None:
    result = run_one(tmp_path, "constant", parameters={"value": 1})
    assert (result.status, result.basis, result.observed, result.reason) == ("pass", "analytic", 1, None)
    assert result.details == {"seed": 3, "threads": 1}


def test_a_value_off_the_band_fails(tmp_path: Path) -> None:
    result = run_one(tmp_path, "constant", parameters={"value": 2})
    assert (result.status, result.observed) == ("fail", 2)
    assert result.reason == "observed 2 is above the band, which ends at 1"
    assert result.failure is None


@pytest.mark.parametrize(
    ("check", "message", "kind"),
    [
        ("crash", "ZeroDivisionError: the check divides by zero", "check"),
        ("bare", "TypeError: the check sample.bare returned float, not Observed", "check"),
        ("missing", "ValueError: no check named 'missing' in the checks of 'sample'", "check"),
        ("lost_download", "model: the download broke off (got 'smollm2-135m')", "run"),
    ],
)
def test_an_error_is_a_failed_claim_with_its_traceback(
    tmp_path: Path, check: str, message: str, kind: str
) -> None:
    result = run_one(tmp_path, check)
    assert result.status == "fail"
    assert result.reason == message
    assert result.failure is not None
    assert result.failure.kind == kind
    assert result.failure.traceback.startswith("Traceback")
    assert not result.is_final


def test_nan_fails_and_is_kept_as_null(tmp_path: Path) -> None:
    tolerance = {"kind": "statistical", "low": -10, "high": 10}
    result = run_one(tmp_path, "nan", tolerance=tolerance)
    assert (result.status, result.observed, result.reason) == ("fail", None, "observed is not a number")
    assert result.details == {"inf": None, "list": [None, {"x": 1}]}


def test_numpy_and_torch_scalars_count_as_numbers(tmp_path: Path) -> None:
    import numpy as np
    import torch

    from dtk.repro.checks import Observed

    values = {"a": np.int64(2), "b": np.float32(0.5), "c": torch.tensor(3), "d": np.bool_(True)}
    observed = Observed(value=values, basis="measured")  # type: ignore[arg-type]
    assert observed.value == {"a": 2, "b": 0.5, "c": 3, "d": True}
    assert [type(value) for value in observed.value.values()] == [int, float, int, bool]


@pytest.mark.parametrize(
    ("check", "fields", "reason"),
    [
        ("not_here", {}, "needs a second machine"),
        (None, {"untestable": "no such machine"}, "no such machine"),
        ("constant", {"parameters": {"value": 1}, "memory": "1000TiB"}, "needs 1.02e+06 GiB of memory, and"),
        ("constant", {"parameters": {"value": 1}, "requires": ["gpu"]}, "needs a GPU"),
        (None, {"untestable": "and no check", "requires": ["gpu"]}, "needs a GPU here; and no check"),
    ],
)
def test_what_cannot_be_tested_is_said_and_never_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str | None, fields: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(requirements, "REQUIREMENTS", {"gpu": lambda: "needs a GPU here"})
    result = run_one(tmp_path, check, **fields)
    assert (result.status, result.basis, result.observed) == ("not-testable", "published", None)
    assert result.reason is not None
    assert result.reason.startswith(reason)


def test_a_gpu_claim_runs_where_a_gpu_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "REQUIREMENTS", {"gpu": lambda: None})
    assert run_one(tmp_path, "constant", parameters={"value": 1}, requires=["gpu"]).status == "pass"


def test_the_gpu_probe_agrees_with_torch() -> None:
    import torch

    assert (requirements.REQUIREMENTS["gpu"]() is None) == torch.cuda.is_available()


def test_the_rest_goes_on_after_an_error(tmp_path: Path) -> None:
    recorder = Recorder()
    outcome = run(
        *start(
            tmp_path,
            claim("sample.a", "crash"),
            claim("sample.b", "lost_download"),
            claim("sample.c", "constant", parameters={"value": 1}),
        ),
        recorder,
    )
    assert [result.status for result in outcome.results.values()] == ["fail", "fail", "pass"]
    assert recorder.heard[-2:] == ["3/3 sample.c", "sample.c pass"]
    assert exit_code(outcome) is ExitCode.RUN_FAILED


def test_an_interrupt_keeps_what_is_done_and_resume_does_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "log"
    constants = [
        claim(f"sample.{name}", "constant", parameters={"value": 1, "log": str(log)}) for name in "abc"
    ]
    folder, config = start(tmp_path / "runs", *constants)
    outcome = run(folder, config, Recorder(interrupt_at="sample.c"))
    assert outcome.interrupted
    assert list(outcome.results) == ["sample.a", "sample.b"]
    assert exit_code(outcome) is ExitCode.INTERRUPTED

    recorder = Recorder()
    again = run(folder, config, recorder)
    assert recorder.heard == ["kept sample.a sample.b", "3/3 sample.c", "sample.c pass"]
    assert exit_code(again) is ExitCode.PASSED
    assert log.read_text().count("constant") == 3


def test_resume_keeps_failed_claims_but_tries_errors_and_untestable_ones_again(tmp_path: Path) -> None:
    folder, config = start(
        tmp_path,
        claim("sample.off", "constant", parameters={"value": 2}),
        claim("sample.error", "lost_download"),
        claim("sample.away", "not_here"),
    )
    run(folder, config)
    recorder = Recorder()
    run(folder, config, recorder)
    assert recorder.heard[0] == "kept sample.off"
    assert [item for item in recorder.heard if "/" in item] == ["2/3 sample.error", "3/3 sample.away"]


def test_results_of_other_code_are_not_taken_over(tmp_path: Path) -> None:
    folder, config = start(tmp_path, claim("sample.a", "constant", parameters={"value": 1}))
    run(folder, config)
    recorder = Recorder()
    run(folder, config.model_copy(update={"source_hash": "1"}), recorder)
    assert recorder.heard == ["1/1 sample.a", "sample.a pass"]


def outcome_of(*statuses: str, failure: str | None = None, interrupted: bool = False) -> Outcome:
    error = {"message": "m", "traceback": "t", "kind": failure} if failure else None
    plain = {"config_hash": "0", "basis": "measured", "seconds": 0, "finished_utc": "", "failure": error}
    return Outcome(
        {
            str(number): ClaimResult.model_validate(plain | {"id": str(number), "status": status})
            for number, status in enumerate(statuses)
        },
        interrupted,
    )


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (outcome_of("pass", "not-testable"), 0),
        (outcome_of("pass", "fail"), 1),
        (outcome_of("fail", failure="check"), 1),
        (outcome_of("not-testable"), 3),
        (outcome_of("fail", "pass", failure="run"), 4),
        (outcome_of("fail", failure="run", interrupted=True), 130),
        (outcome_of(interrupted=True), 130),
    ],
)
def test_exit_codes(outcome: Outcome, code: int) -> None:
    assert exit_code(outcome) == code


def test_claims_share_one_experiment_a_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    folder, config = start(
        tmp_path, *[claim(f"sample.{name}", "shared_count", parameters={"log": str(log)}) for name in "ab"]
    )
    assert [result.status for result in run(folder, config).results.values()] == ["pass", "pass"]
    assert log.read_text() == "made\n"


def test_a_failed_experiment_fails_its_claims_without_a_second_try() -> None:
    context = RunContext(seed=0, threads=1)
    tries = []

    def make() -> int:
        tries.append(1)
        raise RunFailedError("no network")

    for _ in range(2):
        with pytest.raises(RunFailedError, match="no network"):
            context.shared("model", make)
    assert len(tries) == 1
    assert context.shared("other", lambda: None) is None


def test_random_numbers_depend_on_seed_and_name_alone() -> None:
    first, second = RunContext(seed=1, threads=1), RunContext(seed=1, threads=1)
    first.rng("elsewhere").random(5)
    assert first.rng("a").random() == second.rng("a").random() != second.rng("b").random()
    assert first.torch_seed("a") == second.torch_seed("a") != RunContext(seed=2, threads=1).torch_seed("a")


def test_a_row_has_all_that_scripts_read(tmp_path: Path) -> None:
    folder, config = start(tmp_path, claim("sample.one", "constant", parameters={"value": 2}))
    result = run(folder, config).results["sample.one"]
    row = result_row(config.claims[0], result)
    assert (
        row.items()
        >= {
            "id": "sample.one",
            "paper": "sample",
            "status": "fail",
            "basis": "analytic",
            "paper_value": 1,
            "expected": 1,
            "observed": 2,
            "band": {"low": 1.0, "high": 1.0},
            "tolerance": "exact",
            "error": None,
        }.items()
    )
