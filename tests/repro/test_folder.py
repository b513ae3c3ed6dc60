"""A run's folder: nothing is lost to a kill at any byte, damage is named, two writers never meet."""

import json
import logging
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtk.errors import InputError, RunFailedError
from dtk.repro.folder import RunFolder, find_run, write_atomically
from dtk.repro.result import ClaimResult, Failure, RunConfig
from tests.repro.samples import claim, parse

CLAIMS = parse(*[claim(f"sample.{name}", "constant", parameters={"value": 1}) for name in ("a", "b", "c")])
CONFIG = RunConfig(claims=CLAIMS, seed=0, threads=1, source_hash="0")


def result(name: str, config: RunConfig = CONFIG, **fields: Any) -> ClaimResult:
    config_hash = config.claim_hash(next(item for item in CLAIMS if item.id == f"sample.{name}"))
    plain = {"status": "pass", "basis": "measured", "observed": 1, "bands": {"": (1, 1)}, "seconds": 0.5}
    head = {"id": f"sample.{name}", "config_hash": config_hash, "finished_utc": "2026-01-01T00:00:00+00:00"}
    return ClaimResult.model_validate(head | plain | fields)


def fresh(out: Path) -> RunFolder:
    return RunFolder.create(out, CONFIG, ("dtk",), {"python": "3"})


def test_results_read_back_as_written(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    failure = Failure(message="m", traceback="t", kind="run")
    written = [
        result("b", details={"text": "ä\n\u2028", "number": 0.1, "nested": {"list": [1, None]}}),
        result(
            "a", status="fail", observed={"x": 1, "y": 2.5}, bands={"x": (None, 1.0), "y": None}, reason="r"
        ),
        result("c", status="fail", observed=None, failure=failure.model_dump()),
    ]
    for item in written:
        folder.append(item)
    read = folder.results(CONFIG)
    assert list(read) == ["sample.a", "sample.b", "sample.c"]
    assert sorted(read.values(), key=lambda item: item.id) == sorted(written, key=lambda item: item.id)


def test_lines_are_strict_json_and_nan_is_null(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    folder.append(
        result("a", observed=math.nan, details={"inf": math.inf, "path": Path("x"), "t": (math.nan,)})
    )
    line = (folder.path / "results.jsonl").read_text(encoding="utf-8")
    document = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert document["observed"] is None
    assert document["details"] == {"inf": None, "path": "x", "t": [None]}


def test_the_last_line_of_a_claim_counts_and_other_settings_do_not(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    other = CONFIG.model_copy(update={"seed": 1})
    folder.append(result("a", status="fail"))
    folder.append(result("a"))
    folder.append(result("b", other))
    assert {claim_id: item.status for claim_id, item in folder.results(CONFIG).items()} == {
        "sample.a": "pass"
    }
    assert list(folder.results(other)) == ["sample.b"]


def test_the_hash_sees_settings_and_the_claim_but_not_other_claims() -> None:
    one, two, _ = CLAIMS
    assert CONFIG.claim_hash(one) != CONFIG.claim_hash(two)
    assert CONFIG.model_copy(update={"claims": (one,)}).claim_hash(one) == CONFIG.claim_hash(one)
    for change in ({"seed": 1}, {"threads": 2}, {"source_hash": "1"}):
        assert CONFIG.model_copy(update=change).claim_hash(one) != CONFIG.claim_hash(one)
    assert CONFIG.claim_hash(one.model_copy(update={"parameters": {"value": 2}})) != CONFIG.claim_hash(one)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_a_kill_at_any_byte_costs_at_most_the_line_being_written(tmp_path: Path, data: st.DataObject) -> None:
    out = tmp_path / "runs"
    shutil.rmtree(out, ignore_errors=True)
    folder = fresh(out)
    folder.append(result("a", details={"text": "two\nlines"}))
    folder.append(result("b"))
    file = folder.path / "results.jsonl"
    whole = file.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    file.write_bytes(whole[:cut])
    survivors = [f"sample.{name}" for name, _ in zip("ab", range(whole[:cut].count(b"\n")), strict=False)]
    assert list(folder.results(CONFIG)) == survivors
    with folder.writing():
        folder.append(result("c"))
    assert list(folder.results(CONFIG)) == [*survivors, "sample.c"]


def test_damage_in_the_middle_costs_only_its_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = fresh(tmp_path)
    folder.append(result("a"))
    with (folder.path / "results.jsonl").open("a") as stream:
        stream.write("{broken}\n\n")
    folder.append(result("b"))
    logger = logging.getLogger("dtk.repro.folder")
    logger.addHandler(caplog.handler)
    try:
        for _ in range(2):
            assert list(folder.results(CONFIG)) == ["sample.a", "sample.b"]
    finally:
        logger.removeHandler(caplog.handler)
    assert len({record.getMessage() for record in caplog.records}) == 1
    assert "2 damaged lines skipped (the first is line 2)" in caplog.records[0].getMessage()


def test_a_second_process_is_kept_out_and_a_killed_one_is_not(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    code = """if True:
        import filelock, sys, time
        with filelock.FileLock(sys.argv[1]):
            print(1, flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", code, str(folder.path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(InputError, match="another process"), folder.writing():
            pytest.fail("two writers")
        other.kill()
    with folder.writing():
        folder.append(result("a"))


def test_runs_that_start_in_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    folders = [fresh(tmp_path) for _ in range(3)]
    assert len({folder.path for folder in folders}) == 3
    assert all(folder.manifest().run_id == folder.path.name for folder in folders)
    assert find_run("latest", tmp_path).path == folders[-1].path


def test_a_resume_is_noted_in_the_manifest(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    changed = CONFIG.model_copy(update={"source_hash": "1"})
    folder.add_invocation(changed, ("dtk", "--resume"), {"python": "4"})
    manifest = RunFolder.open(folder.path).manifest()
    assert manifest.config == changed
    assert [item.argv for item in manifest.invocations] == [("dtk",), ("dtk", "--resume")]
    assert [item.environment["python"] for item in manifest.invocations] == ["3", "4"]


@pytest.mark.parametrize("content", [None, "", "[]", '{"schema": "dtk.repro.manifest/1"}', "\x00"])
def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        find_run(str(tmp_path), tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert ": :" not in str(caught.value)


def test_latest_without_any_run_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--out: there is no run"):
        find_run("latest", tmp_path / "none")


def test_an_impossible_out_folder_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--out: cannot make the folder"):
        fresh(tmp_path / "file")


def test_a_failing_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "half \ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(RunFailedError, match="cannot write"):
        write_atomically(tmp_path / "missing" / "report.html", "x")


def test_a_vanished_folder_fails_the_run(tmp_path: Path) -> None:
    folder = fresh(tmp_path)
    shutil.rmtree(folder.path)
    with pytest.raises(RunFailedError, match="cannot write"):
        folder.append(result("a"))
