"""The compiled module keeps newer instructions to their units, and every unit passes every kernel test."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dtk_kernels import status

ROOT = Path(__file__).parents[2]


@pytest.mark.native
@pytest.mark.slow
def test_all_native_tests_pass_on_every_instruction_set() -> None:
    usable = status.instruction_sets() + status.optional_instruction_sets()
    others = [name for name in usable if name != status.instruction_set()]
    for name in others:
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "native",
             "tests/kernels/attention", "tests/kernels/gemm", "tests/kernels/kv",
             "tests/kernels/quant", "tests/kernels/test_workers.py"],
            capture_output=True, text=True, timeout=500, check=False, cwd=ROOT,
            env=os.environ | {"DTK_CPU_ISA": name},
        )  # fmt: skip
        assert process.returncode == 0, process.stdout[-3000:]


@pytest.fixture(scope="module")
def disassembly() -> dict[str, str]:
    """The code of each function, by the translation unit and name that the symbol table gives it."""
    objdump = shutil.which("objdump")
    spec = importlib.util.find_spec("dtk_kernels._native")
    if objdump is None or spec is None or spec.origin is None:
        pytest.skip("needs objdump and the compiled module")
    units: dict[str, str] = {}
    unit = "?"
    for line in _lines(objdump, "-t", spec.origin):
        if file := re.search(r" df \*ABS\*\s+\S+\s+(\S+)$", line):
            unit = file[1]
        elif symbol := re.match(r"([0-9a-f]+) l +F \.text", line):
            units[symbol[1]] = unit
    functions: dict[str, str] = {}
    name = "?"
    for line in _lines(objdump, "-d", "--no-show-raw-insn", spec.origin):
        if header := re.match(r"([0-9a-f]{16}) <(.+)>:$", line):
            name = f"{units.get(header[1], '?')}:{header[2]}@{header[1]}"
            functions[name] = ""
        else:
            functions[name] = functions.get(name, "") + line + "\n"
    return functions


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


AVX512_UNITS = ("kernels_avx512.cpp:", "limits_avx512.cpp:", "quant_avx512.cpp:")
WIDE_UNITS = ("kernels_avx2.cpp:", "limits_avx2.cpp:", "quant_avx2.cpp:", *AVX512_UNITS)


@pytest.mark.native
def test_avx512_only_in_its_units(disassembly: dict[str, str]) -> None:
    assert sum(map(len, disassembly.values())) > 100_000
    if not any(name.startswith(WIDE_UNITS) for name in disassembly):
        pytest.skip("the module was stripped of the symbols that tell units apart, or has only the baseline")
    wide = [name for name, code in disassembly.items() if "%zmm" in code]
    assert wide
    assert [name for name in wide if not name.startswith(AVX512_UNITS)] == []


@pytest.mark.native
def test_avx2_only_in_its_units(disassembly: dict[str, str]) -> None:
    if "avx2" not in status.instruction_sets():
        pytest.skip("this build has no AVX2 unit")
    wide = [name for name, code in disassembly.items() if "%ymm" in code]
    assert wide
    if not any(name.startswith(WIDE_UNITS) for name in disassembly):
        pytest.skip("the module was stripped of the symbols that tell units apart")
    assert [name for name in wide if not name.startswith(WIDE_UNITS)] == []


@pytest.mark.native
def test_nothing_is_fused_where_results_are_exact(disassembly: dict[str, str]) -> None:
    fused = [name for name, code in disassembly.items() if re.search(r"\bvfn?m(add|sub)", code)]
    if not any(name.startswith(WIDE_UNITS) for name in fused):
        pytest.skip("the module was stripped of the symbols that tell units apart, or has only the baseline")
    assert [name for name in fused if name.startswith("quant_")] == []


def test_nothing_is_built_for_the_builders_own_cpu() -> None:
    cmake = [ROOT / "CMakeLists.txt", *(ROOT / "csrc").rglob("CMakeLists.txt")]
    lines = [line for file in (ROOT / "pyproject.toml", *cmake) for line in file.read_text().splitlines()]
    options = [line for line in lines if not line.lstrip().startswith("#")]
    assert not any(re.search(r"-m(arch|tune|cpu)=native", line) for line in options)


def test_units_include_nothing_that_the_linker_could_share() -> None:
    declarations = {"kernels.hpp", "limits_table.hpp", "quant_table.hpp", "streaming.hpp"}
    allowed = {"immintrin.h", "cstdint", *declarations}
    folder = ROOT / "csrc/kernels"
    for file in [
        *folder.glob("kernels*.[ch]pp"),
        *folder.glob("limits_*.[ch]pp"),
        *folder.glob("quant_*.[ch]pp"),
        *(folder / "units").iterdir(),
    ]:
        included = re.findall(r'#include [<"]([^>"]+)[>"]', file.read_text())
        assert {name for name in included if not name.startswith("units/")} <= allowed, file
