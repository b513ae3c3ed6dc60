"""What an installation of dtk holds, compared with the checkout; the same for a wheel and in place.

Skipped where dtk is run from the checkout without an installation, unless DTK_REQUIRE_INSTALLED=1.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dtk
import dtk_kernels

ROOT = Path(__file__).parent.parent
DISTRIBUTION = "dtk-llm"
SOURCES = {"dtk": ROOT / "packages" / "dtk", "dtk_kernels": ROOT / "kernels" / "dtk_kernels"}
PAPERS = ("h2", "scout", "fp4", "zeropp")


def source_files(package: str) -> set[str]:
    """Return the files of a package in the checkout, without what a build leaves there."""
    folder = SOURCES[package]
    ignored = {".so", ".pyc"}
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in ignored)
    return {str(path.relative_to(folder.parent)) for path in files}


def source_modules(package: str) -> set[str]:
    """Return the dotted names of the modules that the checkout's files make."""
    modules = set()
    for name in source_files(package):
        path = Path(name)
        if path.suffix == ".py":
            modules.add(
                ".".join(path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts)
            )
    return modules


def walked_modules(package: str) -> set[str]:
    """Return what `pkgutil.walk_packages` finds, without the compiled module."""
    module = importlib.import_module(package)
    found = {info.name for info in pkgutil.walk_packages(module.__path__, f"{package}.")}
    return {package} | {name for name in found if not name.endswith("._native")}


@pytest.fixture
def distribution() -> importlib.metadata.Distribution:
    """Return the installed distribution, or skip."""
    try:
        found = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        if os.environ.get("DTK_REQUIRE_INSTALLED") == "1":
            raise
        pytest.skip("dtk runs from the checkout here")
    return found


@pytest.mark.parametrize("package", SOURCES)
def test_every_module_is_found(package: str) -> None:
    assert walked_modules(package) == source_modules(package)


@pytest.mark.parametrize("package", SOURCES)
def test_every_module_can_be_imported(package: str) -> None:
    # In a process of its own: the interpreter flag that other tests set changes what Triton's modules are.
    names = sorted(walked_modules(package) - {"dtk.__main__"})
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.native
@pytest.mark.parametrize("package", SOURCES)
def test_the_compiled_module_is_there(package: str) -> None:
    assert importlib.util.find_spec(f"{package}._native") is not None


@pytest.mark.parametrize("package", SOURCES)
def test_typed(package: str) -> None:
    assert (Path(str(importlib.import_module(package).__file__)).parent / "py.typed").exists()


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["version"]) == (DISTRIBUTION, dtk.__version__)


def test_the_papers_hide_no_package_of_others() -> None:
    """`h2` and `scout` are packages on PyPI; ours must be reachable as `dtk.h2` only."""
    checkout = str(ROOT)
    for name in PAPERS:
        module = sys.modules.get(name)
        assert module is None or not str(getattr(module, "__file__", "")).startswith(checkout)
        spec = importlib.util.find_spec(name)
        origins = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or [])]
        assert not any(origin.startswith(checkout) for origin in origins)


def test_every_test_folder_is_a_package() -> None:
    """Without an __init__.py, pytest would put the folder itself on the path, tests/h2 as `h2`."""
    folders = {path.parent for path in (ROOT / "tests").rglob("*.py")}
    assert {folder for folder in folders if not (folder / "__init__.py").exists()} == set()


def test_the_wheel_holds_the_checkout_and_the_compiled_modules(
    distribution: importlib.metadata.Distribution,
) -> None:
    if is_editable(distribution):
        pytest.skip("installed in place")
    installed = {str(file) for file in distribution.files or []}
    ours = {name for name in installed if name.split("/")[0] in SOURCES and not name.endswith(".pyc")}
    native = {name for name in ours if name.endswith(".so")}
    assert sorted(name.partition(".")[0] for name in native) == ["dtk/_native", "dtk_kernels/_native"]
    assert ours - native == source_files("dtk") | source_files("dtk_kernels")
    others = {name.split("/")[0] for name in installed} - set(SOURCES) - {".."}
    assert others == {f"dtk_llm-{dtk.__version__}.dist-info"}


def test_an_install_in_place_runs_the_checkout(distribution: importlib.metadata.Distribution) -> None:
    if not is_editable(distribution):
        assert Path(sys.prefix) in Path(str(dtk.__file__)).parents
        assert Path(sys.prefix) in Path(str(dtk_kernels.__file__)).parents
    else:
        assert Path(str(dtk.__file__)).parent == SOURCES["dtk"]
        assert Path(str(dtk_kernels.__file__)).parent == SOURCES["dtk_kernels"]


def test_metadata(distribution: importlib.metadata.Distribution) -> None:
    assert distribution.version == dtk.__version__
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    licences = [file for file in distribution.files or [] if file.name == "LICENSE"]
    assert len(licences) == 1


def test_the_console_script(distribution: importlib.metadata.Distribution) -> None:
    script = Path(sys.executable).parent / "dtk"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"dtk {distribution.version}\n"


def is_editable(distribution: importlib.metadata.Distribution) -> bool:
    """Whether the distribution runs the checkout's files instead of copies."""
    return not any(file.parts[:2] == ("dtk", "__init__.py") for file in distribution.files or [])
