"""llama.cpp that is missing or broken is reported, and nothing else happens."""

from pathlib import Path

import pytest

from dtk.scout.bench import llama_cpp
from dtk.scout.bench.llama_cpp import LlamaCppAttention, LlamaCppUnavailableError
from tests.scout.bench.test_contenders import small_case


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LlamaCppUnavailableError, match=r"^not installed$"):
        llama_cpp.library_folder()


def test_the_libraries_lie_in_the_package_which_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert llama_cpp.library_folder() == package / "lib"


def test_libraries_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(LlamaCppUnavailableError, match=r"cannot be used: .*libggml-base.so"):
        LlamaCppAttention(small_case("fp32", 1), 1, tmp_path)


def test_libraries_of_another_interface(tmp_path: Path) -> None:
    # The C library has none of ggml's functions.
    libc = next(Path("/").glob("lib/*/libm.so.6"), None) or next(Path("/").glob("lib64/libm.so.6"), None)
    if libc is None:
        pytest.skip("found no shared library to put in ggml's place")
    (tmp_path / "libggml-base.so").symlink_to(libc)
    with pytest.raises(LlamaCppUnavailableError, match=r"cannot be used: .*ggml_init"):
        LlamaCppAttention(small_case("fp32", 1), 1, tmp_path)
