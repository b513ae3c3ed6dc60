"""Developer sessions; `nox -l` lists them.

All sessions share one virtual environment, `.nox/shared`, since torch, triton and ray take 2 GB. It holds an
ordinary (not editable) install of this checkout, made again whenever the sources differ from what it holds.
DTK_NOX_IN_PLACE=1 uses the interpreter that runs nox as it is, and installs nothing.
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "none"

ROOT = Path(__file__).parent.resolve()
SHARED = ROOT / ".nox" / "shared"
IN_PLACE = os.environ.get("DTK_NOX_IN_PLACE") == "1"
SOURCES = ("packages", "kernels", "csrc", "CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE")


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests, and the examples of README and docs: `nox -s tests -- -k scout`."""
    python = shared_environment(session, "test")
    environment = {"DTK_REQUIRE_NATIVE": "1"} | ({} if IN_PLACE else {"DTK_REQUIRE_INSTALLED": "1"})
    session.run(python, "-m", "pytest", "--durations=10", *session.posargs, env=environment)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Check style and formatting (ruff, clang-format), and say how large files and functions are."""
    python = shared_environment(session, "lint", project=False)
    session.run(python, "-m", "ruff", "check")
    session.run(python, "-m", "ruff", "format", "--check")
    units = (path for path in sorted(ROOT.glob("csrc/**/*")) if path.suffix in {".cpp", ".hpp", ".inc"})
    sources = [str(path.relative_to(ROOT)) for path in units]
    session.run(str(Path(python).with_name("clang-format")), "--dry-run", "-Werror", *sources)
    session.run(python, "tests/size_report.py")


@nox.session(default=False)
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly."""
    python = shared_environment(session, "types")
    session.run(python, "-m", "mypy", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation into docs/_build/html; warnings are errors."""
    python = shared_environment(session, "docs")
    target = ROOT / "docs" / "_build" / "html"
    session.run(python, "-m", "sphinx", "-W", "-n", "--keep-going", "-b", "html", "docs", str(target))


@nox.session(default=False)
def sanitize(session: nox.Session) -> None:
    """Run the native tests in a build with GCC's address sanitizer (`-- thread`: the thread sanitizer)."""
    kind = session.posargs[0] if session.posargs else "address"
    python = shared_environment(session, "test")
    folder = ROOT / "build" / f"sanitize-{kind}"
    options = [f"build-dir={folder / 'cmake'}", f"cmake.define.DTK_SANITIZE={kind}"]
    settings = [argument for option in options for argument in ("--config-settings", option)]
    target = ["--no-deps", "--upgrade", "--target", str(folder / "site")]
    session.run(python, "-m", "pip", "install", "--quiet", *target, *settings, ".")
    environment = {
        "LD_PRELOAD": sanitizer_libraries(session, kind),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(folder / "site"),
        "DTK_REQUIRE_NATIVE": "1",
        "OMP_NUM_THREADS": "1",
    }
    ask = "from dtk_kernels.status import *; print(*instruction_sets(), *optional_instruction_sets())"
    names = str(session.run(python, "-c", ask, env=environment, silent=True)).split()
    # The sanitizer writes to descriptor 2 and ends the process: pytest must not hold its words back.
    pytest = [python, "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", "-m", "native"]
    folders = ("attention", "gemm", "kv", "quant")
    kernels = [*(f"tests/kernels/{name}" for name in folders), "tests/csrc/test_attention_split.py"]
    for name in names:
        session.run(*pytest, *kernels, env=environment | {"DTK_CPU_ISA": name})
    threads = sorted(str(file) for file in (ROOT / "tests" / "kernels").glob("test_worker*.py"))
    # Not those about memory in use, CPU time or programs that end early: a sanitizer changes all of these.
    others = ("_resources.py", "_taking_part.py", "_lifetime.py")
    threads = [file for file in threads if not file.endswith(others)]
    session.run(*pytest, *threads, "tests/csrc/test_sanitizers.py", env=environment)
    session.run(*pytest, "tests/simulation", env=environment)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run every script in benchmarks/, or the named ones: `nox -s bench -- attention`."""
    names = session.posargs or sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    if not names:
        session.skip("there is no benchmark yet")
    python = shared_environment(session, "bench")
    for name in names:
        # 3: nothing testable here, without a GPU for example.
        session.run(python, f"benchmarks/{name}.py", success_codes=[0, 3])


@nox.session(default=False)
def repro(session: nox.Session) -> None:
    """Check the papers' claims on this machine: `nox -s repro -- scout --quick`."""
    python = shared_environment(session)
    session.run(python, "-m", "dtk", "repro", "run", *session.posargs)


@nox.session(default=False)
def packaging(session: nox.Session) -> None:
    """Build the sdist and a wheel from it; install the wheel, then the checkout in place, and compare."""
    python = shared_environment(session, "test", "packaging")
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    # Without options, `build` makes the wheel from the sdist, not from the checkout.
    session.run(python, "-m", "build", "--outdir", str(dist))
    wheel = next(dist.glob("*.whl"))
    for requirement in ([str(wheel)], ["--editable", "."]):
        clean = clean_environment(session, python)
        # The borrowed dependencies may hold an installation of dtk of their own, which must not count.
        options = ["--quiet", "--no-deps", "--ignore-installed"]
        session.run(clean, "-m", "pip", "install", *options, *requirement)
        environment = {"DTK_REQUIRE_NATIVE": "1", "DTK_REQUIRE_INSTALLED": "1"}
        session.run(clean, "-m", "pytest", "tests/test_packaging.py", env=environment)


def shared_environment(session: nox.Session, *groups: str, project: bool = True) -> str:
    """Return an interpreter that has this checkout's current source and the named dependency groups."""
    if IN_PLACE:
        return sys.executable
    python = SHARED / "bin" / "python"
    state_file = SHARED / "dtk-state.json"
    if not state_file.exists():
        session.run(sys.executable, "-m", "venv", "--clear", str(SHARED))
        # Older versions of pip know no dependency groups.
        session.run(str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
        state_file.write_text("{}")
    state = json.loads(state_file.read_text())
    wanted = {f"group:{group}": file_digest(ROOT / "pyproject.toml") for group in groups}
    if project:
        wanted["project"] = source_digest()
    if not wanted.items() <= state.items():
        state_file.write_text("{}")
        arguments = [argument for group in groups for argument in ("--group", group)]
        session.run(str(python), "-m", "pip", "install", *arguments, *(["."] if project else []))
        state_file.write_text(json.dumps(state | wanted))
    return str(python)


def sanitizer_libraries(session: nox.Session, kind: str) -> str:
    """Return what has to be loaded before Python: the sanitizer, and the exceptions that it looks for."""
    compiler = os.environ.get("CXX", "c++")
    names = {"address": "libasan.so", "thread": "libtsan.so", "undefined": "libubsan.so"}
    paths = []
    for name in (names[kind], "libstdc++.so"):
        path = str(session.run(compiler, f"-print-file-name={name}", silent=True)).strip()
        if not Path(path).is_absolute():
            session.error(f"{compiler} has no {name}: this session needs GCC")
        paths.append(path)
    return " ".join(paths)


def clean_environment(session: nox.Session, python: str) -> str:
    """Return an interpreter without dtk that borrows the dependencies of another one."""
    folder = ROOT / ".nox" / "packaging"
    session.run(python, "-m", "venv", "--clear", str(folder))
    borrowed = session.run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", silent=True
    )
    clean = folder / "bin" / "python"
    site = session.run(
        str(clean), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", silent=True
    )
    # Last in the alphabet, so that whatever this environment installs itself comes first.
    Path(str(site).strip(), "zz_borrowed.pth").write_text(str(borrowed))
    return str(clean)


def source_digest() -> str:
    """Return a digest of everything that ends up in the wheel."""
    digest = hashlib.sha256()
    for source in SOURCES:
        path = ROOT / source
        for file in sorted(path.rglob("*") if path.is_dir() else [path]):
            if file.is_file() and file.suffix not in {".so", ".pyc"}:
                digest.update(f"{file.relative_to(ROOT)}\0{file_digest(file)}\n".encode())
    return digest.hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 of one file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
