import hashlib
import os
import pydoc_data.topics
import socket
import sys
from pathlib import Path

import pytest

from dtk.errors import InputError, RunFailedError
from dtk.models import load_text, read_prompt_file
from dtk.models.text import text_names


@pytest.mark.parametrize("name", text_names())
def test_text_is_real_deterministic_and_named(name):
    text = load_text(name)
    assert len(text.text) > 300_000
    assert text.source.endswith(".".join(map(str, sys.version_info[:3])))
    assert text.sha256 == hashlib.sha256(text.text.encode()).hexdigest()
    titles = [title for title, _ in text.documents]
    assert titles == sorted(titles)
    load_text.cache_clear()
    assert load_text(name) == text


def test_the_docs_are_pythons():
    documents = dict(load_text("python-docs").documents)
    assert documents == pydoc_data.topics.topics
    assert 'The "if" statement' in documents["if"]


def test_the_sources_compile():
    documents = load_text("python-source").documents
    for name in ("argparse.py", "typing.py"):
        compile(dict(documents)[name], name, "exec")


def test_unknown_text():
    with pytest.raises(InputError, match=r"unknown text \(got 'bible'\); known: python-docs, python-source"):
        load_text("bible")


def test_python_without_its_docs(monkeypatch):
    load_text.cache_clear()
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    monkeypatch.delattr(pydoc_data, "topics")
    with pytest.raises(RunFailedError, match="no pydoc_data"):
        load_text("python-docs")


@pytest.mark.parametrize(
    ("content", "text"),
    [("grün 🙂\n".encode(), "grün 🙂\n"), (b"\xef\xbb\xbfwith a mark", "with a mark"), (b" \n x", " \n x")],
)
def test_prompt_file(content, text, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(content)
    assert read_prompt_file(file) == text
    assert read_prompt_file(str(file)) == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t \xc2\xa0 ", "is empty"),
        (b"ok \xff", "is not UTF-8 text: byte 0xff at offset 3"),
        ("utf-16".encode("utf-16"), "is not UTF-8 text: byte 0xff at offset 0"),
        (b"\xc3", "is not UTF-8 text: byte 0xc3 at offset 0"),
    ],
)
def test_bad_prompt_file(content, message, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"--prompt-file: {message}") as caught:
        read_prompt_file(file)
    assert (caught.value.value, caught.value.exit_code) == (str(file), 2)


def test_prompt_file_that_is_none(tmp_path):
    with pytest.raises(InputError, match=r"--prompt-file: no such file \(got '.*nothing.txt'\)"):
        read_prompt_file(tmp_path / "nothing.txt")
    with pytest.raises(InputError, match="--prompt-file: is a folder, not a file"):
        read_prompt_file(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--corpus: cannot be read: Not a directory"):
        read_prompt_file(tmp_path / "file" / "below", field="--corpus")


def test_prompt_file_is_a_regular_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is at most 107 bytes
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name in ("pipe", "socket", "/dev/zero", "/dev/null"):
            with pytest.raises(InputError, match="--prompt-file: is not a regular file") as caught:
                read_prompt_file(name)
            assert caught.value.value == name
    with pytest.raises(InputError, match="--prompt-file: no such file"):
        read_prompt_file("-")


def test_prompt_file_has_a_largest_size(tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"x" * 2**20)
    os.truncate(file, 64 * 2**20)
    assert len(read_prompt_file(file)) == 64 * 2**20
    os.truncate(file, 64 * 2**20 + 1)
    with pytest.raises(InputError, match="--prompt-file: is larger than 64 MiB"):
        read_prompt_file(file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the path is empty"),
        ("~nouser-of-tests/x", "there is no such user's home folder"),
        ("a" * 5000, "cannot be read: File name too long"),
        ("a\0b", "is no path"),
    ],
)
def test_prompt_path_that_cannot_be(name, message):
    with pytest.raises(InputError, match=f"--prompt-file: {message}") as caught:
        read_prompt_file(name)
    assert len(str(caught.value)) < 300


def test_prompt_file_below_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "prompt.txt").write_text("at home")
    assert read_prompt_file(Path("~/prompt.txt")) == "at home"
