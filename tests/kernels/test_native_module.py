"""How the compiled module is found, which instruction set it takes, and what happens without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtk_kernels import _native_module, status

ROOT = Path(__file__).parents[2]


def run(
    script: str, *, path_first: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh interpreter; `path_first` goes before everything else on its path."""
    path = os.pathsep.join(filter(None, [str(path_first or ""), os.environ.get("PYTHONPATH", "")]))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DTK_")}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
        env=clean | {"PYTHONPATH": path} | environment,
    )  # fmt: skip


ASK = """
import sys
from dtk_kernels import status
print(status.instruction_set(), status.instruction_sets())
assert "torch" not in sys.modules
"""


@pytest.mark.native
def test_the_best_instruction_set_is_taken_unless_another_is_named() -> None:
    names = status.instruction_sets()
    assert names[0] == "generic"
    assert run(ASK).stdout.split()[0] == names[-1]
    assert not set(names) & {"avx512", *status.optional_instruction_sets()}
    for name in names + status.optional_instruction_sets():
        assert run(ASK, DTK_CPU_ISA=name).stdout.split()[0] == name


@pytest.mark.native
def test_a_wrong_instruction_set_is_an_error_not_a_fall_back() -> None:
    process = run(ASK, DTK_CPU_ISA="avx9")
    assert process.returncode == 1
    last_line = process.stderr.strip().splitlines()[-1]
    names = ", ".join(status.instruction_sets() + status.optional_instruction_sets())
    expected = f"InstructionSetError: DTK_CPU_ISA is 'avx9'; this build on this CPU has {names}"
    assert last_line.endswith(expected)


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the compiled module look missing."""
    monkeypatch.setitem(sys.modules, "dtk_kernels._native", None)
    monkeypatch.delenv("DTK_REQUIRE_NATIVE", raising=False)
    _native_module._load.cache_clear()
    monkeypatch.setattr(_native_module, "_load", _native_module._load.__wrapped__)


@pytest.mark.usefixtures("without_native")
def test_a_missing_module_has_a_reason() -> None:
    assert _native_module.native_module() is None
    assert "dtk_kernels._native" in _native_module.why_no_native_module()
    states = status.implementations()
    for operation in states.values():
        assert operation["reference"].live
        assert not operation["native"].live
        assert "is not installed" in operation["native"].reason
    assert status.instruction_set() is None
    assert status.instruction_sets() == []


@pytest.mark.usefixtures("without_native")
def test_a_missing_module_is_an_error_if_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTK_REQUIRE_NATIVE", "1")
    with pytest.raises(ImportError, match=r"^DTK_REQUIRE_NATIVE is 1, but the compiled module is"):
        _native_module.native_module()


def test_a_module_that_does_not_load_has_a_reason(tmp_path: Path) -> None:
    """A file for another machine, say: the package's own folder is taken, with a broken module in it."""
    package = tmp_path / "dtk_kernels"
    package.mkdir()
    source = Path(_native_module.__file__).parent
    for name in ("__init__.py", "_native_module.py", "_registry.py", "status.py"):
        (package / name).symlink_to(source / name)
    (package / "_native.abi3.so").write_bytes(b"not a library")
    process = run(
        "from dtk_kernels import _native_module as m; print(m.native_module(), m.why_no_native_module())",
        path_first=tmp_path,
    )
    assert process.stdout.startswith("None the compiled module does not load (")
