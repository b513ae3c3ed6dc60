"""`save` chooses the format by the name, writes in one piece, and refuses clearly."""

import gzip
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from dtk.errors import InputError, RunFailedError
from dtk.timeline import perfetto, save
from dtk.timeline.perfetto_check import check_trace_file
from tests.timeline.samples import large, zeropp

HEADS = {".json": b'{"traceEvents"', ".json.gz": b"\x1f\x8b", ".svg": b"<svg ", ".png": b"\x89PNG"}


@pytest.mark.parametrize("suffix", HEADS)
@pytest.mark.parametrize("stem", ["run", "run.2"])
def test_the_suffix_chooses_the_format(tmp_path: Path, suffix: str, stem: str) -> None:
    path = tmp_path / f"{stem}{suffix}"
    path.write_bytes(b"old")
    assert save(zeropp(), path) == ()
    assert path.read_bytes().startswith(HEADS[suffix])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    if "json" in suffix:
        assert check_trace_file(path) == []


def test_text_and_compressed_trace_hold_the_same(tmp_path: Path) -> None:
    save(zeropp(), str(tmp_path / "a.json"))
    save(zeropp(), tmp_path / "a.JSON.GZ")
    assert gzip.decompress((tmp_path / "a.JSON.GZ").read_bytes()) == (tmp_path / "a.json").read_bytes()


@pytest.mark.parametrize("name", ["run", "run.pdf", "run.gz", "run.svgz", ".svg", "json"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        InputError, match=r"path: no format of that name .*\.json, \.json\.gz, \.svg or \.png"
    ):
        save(zeropp(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist"):
        save(zeropp(), tmp_path / "missing" / "run.svg")


def test_what_the_disk_refuses_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.svg").mkdir()
    with pytest.raises(RunFailedError, match=r"cannot write .*run\.svg"):
        save(zeropp(), tmp_path / "run.svg")
    assert [file.name for file in tmp_path.iterdir()] == ["run.svg"]


def test_what_is_left_out_is_returned_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("dtk.timeline.saving")
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(logging.getLogger("dtk"), "propagate", True)
    monkeypatch.setattr(perfetto.encode_trace, "__kwdefaults__", {"compress": False, "max_bytes": 100_000})
    left_out = save(large(num_ranks=2, spans_of_each=1000), tmp_path / "run.json")
    assert len(left_out) == 2
    assert [record.message for record in caplog.records] == [f"run.json: {one}" for one in left_out]


def test_importing_timelines_imports_nothing_heavy() -> None:
    code = (
        "import sys, dtk.timeline; heavy = {'matplotlib', 'numpy', 'rich', 'torch', 'pydantic', 'scipy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
